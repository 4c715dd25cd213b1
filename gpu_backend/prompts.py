"""Where the token ids of prompts come from; workloads have lengths only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvsim.streams import stream

TokenIds = NDArray[np.int32]

RING = 1 << 20
STRIDE = 648_391
"""Odd and near the golden ratio of the ring, so that neighbours in number are far apart in it."""


class Prompts(Protocol):
    """Token ids of every sequence."""

    def tokens(self, seq_id: int, start: int, stop: int) -> TokenIds:
        """Tokens `start` to `stop` of the sequence, as a prompt has them."""
        ...


class RandomPrompts:
    """A ring of random tokens, uniform over the vocabulary; each sequence begins somewhere else in it."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self._ring = stream(seed, "prompts").integers(vocab_size, size=RING, dtype=np.int32)

    def tokens(self, seq_id: int, start: int, stop: int) -> TokenIds:
        """Tokens `start` to `stop` of the sequence."""
        first = seq_id * STRIDE
        tokens: TokenIds = self._ring[np.arange(first + start, first + stop) & (RING - 1)]
        return tokens


class GivenPrompts:
    """Texts: sequence id to token ids.

    Raises:
        ValueError: a token is asked for that its prompt does not have.
    """

    def __init__(self, prompts: Mapping[int, Sequence[int]]) -> None:
        self._prompts = {seq_id: np.array(ids, dtype=np.int32) for seq_id, ids in prompts.items()}

    def tokens(self, seq_id: int, start: int, stop: int) -> TokenIds:
        """Tokens `start` to `stop` of the prompt."""
        prompt = self._prompts[seq_id]
        if stop > len(prompt):
            raise ValueError(f"token {stop - 1} of sequence {seq_id} is asked for, its prompt has {len(prompt)}")
        return prompt[start:stop]
