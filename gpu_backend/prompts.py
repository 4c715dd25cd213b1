"""Where the token ids of prompts come from; workloads have lengths only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvsim.streams import stream

TokenIds = NDArray[np.int32]


class Prompts(Protocol):
    """Token ids of every sequence."""

    def tokens(self, seq_id: int, start: int, stop: int) -> TokenIds:
        """Tokens `start` to `stop` of the sequence, as a prompt has them."""
        ...


class RandomPrompts:
    """Token i of sequence s is a hash of (seed, s, i): uniform over the vocabulary, never stored, endless."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self._key = stream(seed, "prompts").integers(1 << 63, dtype=np.uint64)
        self._vocab_size = np.uint64(vocab_size)

    def tokens(self, seq_id: int, start: int, stop: int) -> TokenIds:
        """Tokens `start` to `stop` of the sequence."""
        mixed = np.arange((seq_id << 32) + start, (seq_id << 32) + stop, dtype=np.uint64)
        # the finalizer of splitmix64, arithmetic modulo 2**64
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= self._key
        mixed ^= mixed >> np.uint64(30)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        return ((mixed >> np.uint64(33)) % self._vocab_size).astype(np.int32)


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
