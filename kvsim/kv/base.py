"""What every allocator shares: the pool's size, the block tables and the books."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kvsim.checks import check_integer
from kvsim.errors import ConfigError, InvariantError
from kvsim.plan import BlockTable, IntArray, PoolUsage

MAX_BLOCKS = 1 << 24
"""Blocks of the largest pool: 16 TiB at a MiB a block, far beyond one server."""


def check_block_size(block_size: int) -> None:
    """Raise ConfigError unless `block_size` is a power of two up to 256."""
    if (
        isinstance(block_size, bool)
        or not isinstance(block_size, int)
        or not 1 <= block_size <= 256
        or block_size & (block_size - 1)
    ):
        raise ConfigError(
            f"kv.block_size={block_size!r}: must be a power of two from 1 to 256; use 16, the usual choice"
        )


class AllocatorBase:
    """A pool of `num_blocks` blocks of `block_size` token slots and the block tables of those who hold some."""

    uses_oracle = False
    whole_blocks = False

    def __init__(self, num_blocks: int, block_size: int, *, max_model_len: int) -> None:
        check_block_size(block_size)
        check_integer("kv.num_blocks", num_blocks, high=MAX_BLOCKS)
        check_integer("max_model_len", max_model_len)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.max_model_len = max_model_len
        self._tables: dict[int, BlockTable] = {}
        self._held_blocks = 0
        self._resident = 0

    @property
    def tables(self) -> Mapping[int, BlockTable]:
        """Block table of every sequence that holds memory; live."""
        return self._tables

    def _usage(self, free_blocks: int, grants: Mapping[int, int], version: int) -> PoolUsage:
        size = self.block_size
        return PoolUsage(
            self.num_blocks * size, self._resident, self._held_blocks * size, free_blocks * size, grants, version
        )

    def _check_books(self, free: IntArray) -> None:
        """Every block is in `free` or owned, exactly once, and the counters agree (INV-blocks)."""
        owned = [block for table in self._tables.values() for block in table]
        blocks = np.concatenate((np.array(owned, dtype=np.int64), free))
        outside = blocks[(blocks < 0) | (blocks >= self.num_blocks)]
        if len(outside):
            raise InvariantError("INV-blocks", f"block {outside[0]} does not exist (pool of {self.num_blocks})")
        times = np.bincount(blocks, minlength=self.num_blocks)
        if (times != 1).any():
            block = int((times != 1).argmax())
            owners = [seq_id for seq_id, table in self._tables.items() for held in table if held == block]
            raise InvariantError(
                "INV-blocks",
                f"block {block} is owned by sequences {owners} and free {int((free == block).sum())} times",
            )
        if len(owned) != self._held_blocks:
            raise InvariantError("INV-blocks", f"{self._held_blocks} blocks counted as held, tables name {len(owned)}")
        if not 0 <= self._resident <= self._held_blocks * self.block_size:
            raise InvariantError("INV-tokens", f"{self._resident} tokens resident in {self._held_blocks} held blocks")
