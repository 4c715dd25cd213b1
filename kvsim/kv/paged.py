"""Paged allocation: block tables that grow by one block at a time (PagedAttention, SOSP'23 section 4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Sized

import numpy as np

from kvsim.errors import ConfigError, InvariantError
from kvsim.kv.base import AllocatorBase
from kvsim.kv.calendar import GrowthCalendar
from kvsim.plan import UNBOUNDED, BlockTable, IntArray, PoolUsage
from kvsim.protocols import Admission
from kvsim.request import Sequence


class PagedAllocator(AllocatorBase):
    """Blocks from one queue, taken at its front; freed ones go to its tail, the end of a table first.

    Args:
        num_blocks: usable blocks of the pool.
        block_size: token slots a block.
        max_model_len: tokens a sequence may reach.
        watermark: fraction of the pool that admission leaves free.
    """

    def __init__(self, num_blocks: int, block_size: int, *, max_model_len: int, watermark: float = 0.0) -> None:
        super().__init__(num_blocks, block_size, max_model_len=max_model_len)
        if isinstance(watermark, bool) or not isinstance(watermark, int | float) or not 0 <= watermark < 1:
            raise ConfigError(f"allocator.watermark={watermark!r}: must be a fraction from 0 to below 1; 0.01 is usual")
        self.watermark_blocks = int(watermark * num_blocks)
        # the queue's front, blocks never taken so far, is a range; a large pool costs nothing until it is used
        self._fresh = 0
        self._freed: deque[int] = deque()
        # of all holders, as long as they grow in step
        self._calendar: GrowthCalendar | None = None

    @property
    def num_free_blocks(self) -> int:
        """Blocks nobody holds."""
        return self.num_blocks - self._fresh + len(self._freed)

    @property
    def max_sequence_tokens(self) -> int:
        """Tokens of the longest sequence that the empty pool holds; the watermark stays free."""
        return min(self.max_model_len, (self.num_blocks - self.watermark_blocks) * self.block_size)

    def can_admit(self, seq: Sequence) -> Admission:
        """NOW if blocks for all known tokens fit above the watermark."""
        fits = self.num_free_blocks - self._blocks_of(seq.num_tokens) >= self.watermark_blocks
        return Admission.NOW if fits else Admission.LATER

    def num_appendable(self, num_tokens: IntArray) -> int:
        """Leading rows for which vLLM's conservative test holds: a block is free, whether or not the row needs one."""
        takes = self._room(num_tokens) == 0
        taken_before = takes.cumsum() - takes
        return int(taken_before.searchsorted(self.num_free_blocks))

    def allocate(self, seq: Sequence, num_tokens: int) -> bool:
        """Give `seq` the blocks it lacks for `num_tokens` tokens; False if they are not there."""
        table = self._tables.get(seq.seq_id)
        need = self._blocks_of(num_tokens) - (0 if table is None else len(table))
        if need > self.num_free_blocks:
            return False
        if table is None:
            table = self._tables[seq.seq_id] = []
            if self._calendar is not None:
                self._calendar.add(seq.seq_id, table, num_tokens)
        else:
            self._calendar = None
        table.extend(self._take(need))
        self._resident += num_tokens - seq.num_computed_tokens
        return True

    def max_decode_steps(self, num_tokens: IntArray) -> int:
        """Rounds of one token each after which a block is still free, so that `num_appendable` covers all rows."""
        if not len(num_tokens):
            return UNBOUNDED
        spare = self.num_free_blocks - 1
        whole = spare // len(num_tokens)
        if whole > 0:
            return whole * self.block_size
        taken = np.bincount(self._room(num_tokens), minlength=self.block_size).cumsum()
        return int(taken.searchsorted(spare, side="right"))

    def grow(self, seqs: Sized[Sequence], num_tokens: IntArray, steps: int) -> IntArray:
        """`steps` rounds of one more token for each of `seqs`; blocks go out round by round, in the order of `seqs`."""
        self._resident += len(seqs) * steps
        if len(seqs) < len(self._tables):
            # those who stand still fall out of step
            self._calendar = None
            growing, taken = self._calendar_of(seqs, num_tokens).rounds(steps)
        else:
            if self._calendar is None:
                self._calendar = self._calendar_of(seqs, num_tokens)
            growing, taken = self._calendar.rounds(steps)
        self._extend(growing)
        return np.array(taken) * self.block_size

    def free(self, seq: Sequence) -> None:
        """Give the blocks of `seq` back."""
        table = self._tables.pop(seq.seq_id, None)
        if table is None:
            raise InvariantError("INV-blocks", f"sequence {seq.seq_id} is freed but holds nothing")
        if self._calendar is not None:
            self._calendar.remove(seq.seq_id, table)
        self._freed.extend(reversed(table))
        self._held_blocks -= len(table)
        self._resident -= seq.num_computed_tokens

    def usage(self) -> PoolUsage:
        """The pool now; nothing is promised beyond the blocks held."""
        return self._usage(self.num_free_blocks, {}, 0)

    def check_integrity(self) -> None:
        """Raise InvariantError unless every block is free or owned exactly once."""
        self._check_books(
            np.concatenate((np.arange(self._fresh, self.num_blocks), np.array(self._freed, dtype=np.int64)))
        )

    def _extend(self, growing: list[BlockTable]) -> None:
        """One more block for each of these tables, in order."""
        if not growing:
            return
        if len(growing) > self.num_free_blocks:
            raise InvariantError(
                "INV-blocks", f"the pool is outgrown: {len(growing)} blocks wanted, {self.num_free_blocks} free"
            )
        for table, block in zip(growing, self._take(len(growing)), strict=True):
            table.append(block)

    def _take(self, count: int) -> list[int]:
        """The first `count` blocks of the queue; they are there."""
        self._held_blocks += count
        first, self._fresh = self._fresh, min(self._fresh + count, self.num_blocks)
        take = self._freed.popleft
        return [*range(first, self._fresh), *[take() for _ in range(count - self._fresh + first)]]

    def _blocks_of(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _room(self, num_tokens: IntArray) -> IntArray:
        """Slots left in each last block; the block size is a power of two."""
        return -num_tokens & (self.block_size - 1)

    def _calendar_of(self, seqs: Sized[Sequence], num_tokens: IntArray) -> GrowthCalendar:
        calendar = GrowthCalendar(self.block_size)
        for seq, held in zip(seqs, num_tokens.tolist(), strict=True):
            calendar.add(seq.seq_id, self._tables[seq.seq_id], held)
        return calendar
