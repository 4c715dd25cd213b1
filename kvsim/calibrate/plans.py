"""`PlanMaker`: plans that no scheduler decided, over block tables that no allocator gave out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kvsim.errors import ConfigError
from kvsim.plan import BlockTable, IntArray, StepPlan


class Row(NamedTuple):
    """`new` tokens to compute, after which `context` are visible; `samples` 0: more of the prompt is to come."""

    new: int
    context: int
    samples: int = 1


class PlanMaker:
    """Makes plans over a pool; every plan has sequences of its own.

    Args:
        num_blocks, block_size: of the pool.
        contiguous: every sequence lies in one piece; else its blocks lie anywhere.
        rng: draws the tables.
    """

    def __init__(self, num_blocks: int, block_size: int, contiguous: bool, rng: np.random.Generator) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._contiguous = contiguous
        self._rng = rng
        self.num_sequences = 0

    def fits(self, rows: Sequence[Row]) -> bool:
        """Whether the pool can hold these rows."""
        return sum(self._blocks_of(row) for row in rows) <= self.num_blocks

    def make(self, rows: Sequence[Row], *, padding_tokens: int = 0) -> StepPlan:
        """The plan of these rows.

        Raises:
            ConfigError: the pool cannot hold them.
        """
        if not self.fits(rows):
            tokens = sum(row.context for row in rows)
            raise ConfigError(f"a pool of {self.num_blocks} blocks holds no {tokens} tokens; raise kv.num_blocks")
        first = self.num_sequences
        self.num_sequences += len(rows)
        ids = np.arange(first, self.num_sequences)
        new, context, samples = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
        decodes = int(((new == 1) & (context > 1)).sum())
        return StepPlan(
            step=0,
            seq_ids=ids,
            positions=context - new,
            num_tokens=new,
            slot_starts=context - new,
            context_lens=context,
            num_samples=samples,
            tables=dict(zip(ids.tolist(), self._tables(rows), strict=True)),
            total_tokens=int(new.sum()),
            context_tokens=int(context.sum()),
            num_decodes=decodes,
            num_running=len(rows),
            padding_tokens=padding_tokens,
        )

    def _blocks_of(self, row: Row) -> int:
        return -(-row.context // self.block_size)

    def _tables(self, rows: Sequence[Row]) -> list[BlockTable]:
        counts = [self._blocks_of(row) for row in rows]
        if self._contiguous:
            start = int(self._rng.integers(self.num_blocks - sum(counts) + 1))
            blocks: IntArray = np.arange(start, start + sum(counts))
        else:
            blocks = self._rng.permutation(self.num_blocks)
        ends = np.cumsum(counts).tolist()
        return [blocks[end - count : end].tolist() for end, count in zip(ends, counts, strict=True)]
