"""Token ids of prompts."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_backend.prompts import GivenPrompts, RandomPrompts


def test_a_token_is_a_function_of_seed_sequence_and_position() -> None:
    prompts = RandomPrompts(3, 1000)
    whole = prompts.tokens(5, 0, 200)
    pieces = [prompts.tokens(5, start, start + 50) for start in range(0, 200, 50)]
    assert np.array_equal(np.concatenate(pieces), whole)
    assert not np.array_equal(whole, prompts.tokens(6, 0, 200))
    assert not np.array_equal(whole, RandomPrompts(4, 1000).tokens(5, 0, 200))


def test_tokens_spread_over_the_vocabulary() -> None:
    tokens = np.concatenate([RandomPrompts(0, 50).tokens(seq_id, 0, 500) for seq_id in range(20)])
    counts = np.bincount(tokens, minlength=50)
    assert len(counts) == 50
    assert ((counts - 200) ** 2 / 200).sum() < 95  # chi square, 49 degrees of freedom


def test_a_text_has_an_end() -> None:
    prompts = GivenPrompts({7: [3, 1, 4]})
    assert prompts.tokens(7, 1, 3).tolist() == [1, 4]
    with pytest.raises(ValueError, match="token 3 of sequence 7 is asked for, its prompt has 3"):
        prompts.tokens(7, 0, 4)
