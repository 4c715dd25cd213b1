"""Contiguous reservation in a buddy pool, by three rules (the Orca variants of SOSP'23 section 6.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence as Sized

import numpy as np

from kvsim.errors import ConfigError, InvariantError
from kvsim.kv.base import AllocatorBase
from kvsim.kv.buddy import BuddyPool
from kvsim.plan import NO_ROWS, UNBOUNDED, IntArray, PoolUsage
from kvsim.protocols import Admission, OutputLengthOracle
from kvsim.request import Request, Sequence


def next_power_of_two(value: int) -> int:
    """Smallest power of two that is at least `value` (1 for 1)."""
    return 1 << (value - 1).bit_length()


class ContiguousAllocator(AllocatorBase, ABC):
    """Reserves on admission what a sequence may come to need, rounded up to a buddy chunk; never grows, never shares.

    A rule says in `reservation` how many tokens that is.
    """

    whole_blocks = True

    def __init__(self, num_blocks: int, block_size: int, *, max_model_len: int) -> None:
        super().__init__(num_blocks, block_size, max_model_len=max_model_len)
        if max_model_len % block_size:
            raise ConfigError(
                f"kv.block_size={block_size}: must divide max_model_len={max_model_len} in a buddy pool; "
                "set scheduler.max_model_len to a multiple of it"
            )
        largest = next_power_of_two(max_model_len // block_size)
        self._pool = BuddyPool(num_blocks, largest)
        self._largest_chunk = self._pool.largest_free
        self._grants: dict[int, int] = {}
        self._version = 0

    @abstractmethod
    def reservation(self, request: Request) -> int:
        """Tokens to reserve for `request`, at most `max_model_len`."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks nobody holds."""
        return self._pool.num_free_blocks

    @property
    def max_sequence_tokens(self) -> int:
        """Tokens of the largest chunk of the empty pool, at most `max_model_len`."""
        return min(self.max_model_len, self._largest_chunk * self.block_size)

    def can_admit(self, seq: Sequence) -> Admission:
        """NOW if a chunk for the whole reservation is free."""
        fits = self._pool.fits(self._chunk_of(self.reservation(seq.request)))
        return Admission.NOW if fits else Admission.LATER

    def num_appendable(self, num_tokens: IntArray) -> int:
        """All rows: the room was reserved."""
        return len(num_tokens)

    def allocate(self, seq: Sequence, num_tokens: int) -> bool:
        """Take a chunk at first; later only check that `num_tokens` stays inside the reservation."""
        if seq.seq_id not in self._tables:
            grant = self.reservation(seq.request)
            size = self._chunk_of(grant)
            start = self._pool.take(size) if num_tokens <= grant else None
            if start is None:
                return False
            self._tables[seq.seq_id] = list(range(start, start + size))
            self._held_blocks += size
            self._grants[seq.seq_id] = grant
            self._version += 1
        elif num_tokens > self._grants[seq.seq_id]:
            return False
        self._resident += num_tokens - seq.num_computed_tokens
        return True

    def max_decode_steps(self, num_tokens: IntArray) -> int:
        """No bound: the room was reserved."""
        return UNBOUNDED

    def grow(self, seqs: Sized[Sequence], num_tokens: IntArray, steps: int) -> IntArray:
        """`steps` more tokens for each of `seqs` inside their reservations."""
        for seq, held in zip(seqs, num_tokens.tolist(), strict=True):
            if held + steps > self._grants[seq.seq_id]:
                raise InvariantError(
                    "INV-blocks",
                    f"sequence {seq.seq_id} grows to {held + steps} tokens, {self._grants[seq.seq_id]} are reserved",
                )
        self._resident += len(seqs) * steps
        return np.zeros(steps, dtype=np.int64)

    def free(self, seq: Sequence) -> None:
        """Give the chunk of `seq` back."""
        table = self._tables.pop(seq.seq_id, None)
        if table is None:
            raise InvariantError("INV-blocks", f"sequence {seq.seq_id} is freed but holds nothing")
        self._pool.give_back(table[0], len(table))
        self._held_blocks -= len(table)
        self._resident -= seq.num_computed_tokens
        del self._grants[seq.seq_id]
        self._version += 1

    def usage(self) -> PoolUsage:
        """The pool now, with the reservation of every holder."""
        return self._usage(self._pool.num_free_blocks, self._grants, self._version)

    def check_integrity(self) -> None:
        """Raise InvariantError unless every block is in one free chunk or one owner's, large enough for its grant."""
        chunks = [np.arange(start, start + size) for start, size in self._pool.chunks()]
        self._check_books(np.concatenate(chunks) if chunks else NO_ROWS)
        for seq_id, table in self._tables.items():
            size = self._chunk_of(self._grants[seq_id])
            if table != list(range(table[0], table[0] + size)) or table[0] % size:
                raise InvariantError("INV-blocks", f"blocks {table[:8]} of sequence {seq_id} are no chunk of {size}")

    def _chunk_of(self, num_tokens: int) -> int:
        return next_power_of_two(-(-num_tokens // self.block_size))


class ReserveMax(ContiguousAllocator):
    """Orca (Max) and FasterTransformer: the model's maximum length for everyone."""

    def reservation(self, request: Request) -> int:
        """`max_model_len`, whatever is asked."""
        return self.max_model_len


class ReserveOracle(ContiguousAllocator):
    """Orca (Oracle): prompt plus the true output length, the infeasible best of reservation."""

    uses_oracle = True

    def __init__(self, num_blocks: int, block_size: int, *, max_model_len: int, oracle: OutputLengthOracle) -> None:
        super().__init__(num_blocks, block_size, max_model_len=max_model_len)
        self._oracle = oracle

    def reservation(self, request: Request) -> int:
        """Prompt + estimated output."""
        estimate = self._estimate(self._oracle.num_output_tokens(request.request_id))
        return min(request.num_prompt_tokens + estimate, self.max_model_len)

    def _estimate(self, num_output_tokens: int) -> int:
        return num_output_tokens


class ReservePow2(ReserveOracle):
    """Orca (Pow2): the true output length rounded up to a power of two, so at most twice too much."""

    def _estimate(self, num_output_tokens: int) -> int:
        return next_power_of_two(num_output_tokens)
