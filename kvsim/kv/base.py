"""What every allocator shares: the pool's size, the block tables and the books."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kvsim.errors import ConfigError, InvariantError
from kvsim.plan import BlockTable, PoolUsage

MAX_BLOCKS = 1 << 31


def check_block_size(block_size: int) -> None:
    """Raise ConfigError unless `block_size` is a power of two up to 256 (ruling 7)."""
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
        if isinstance(num_blocks, bool) or not isinstance(num_blocks, int) or not 1 <= num_blocks <= MAX_BLOCKS:
            raise ConfigError(
                f"the KV pool has {num_blocks!r} blocks: it needs 1 to {MAX_BLOCKS}; change kv.num_blocks"
            )
        if isinstance(max_model_len, bool) or not isinstance(max_model_len, int) or max_model_len < 1:
            raise ConfigError(f"max_model_len={max_model_len!r}: must be a whole number of at least 1; raise it")
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

    def _check_books(self, free: Iterable[int]) -> None:
        """Every block is free or owned, exactly once, and the counters agree (INV-blocks)."""
        owners: dict[int, list[int]] = {}
        for seq_id, table in self._tables.items():
            for block in table:
                owners.setdefault(block, []).append(seq_id)
        for block, seq_ids in owners.items():
            if len(seq_ids) > 1:
                raise InvariantError("INV-blocks", f"block {block} is owned by sequences {seq_ids}")
        free_count = Counter(free)
        for block, count in free_count.items():
            if count > 1 or block in owners:
                raise InvariantError(
                    "INV-blocks", f"block {block} is free {count} times, owners {owners.get(block, [])}"
                )
        known = owners.keys() | free_count.keys()
        if known != set(range(self.num_blocks)):
            lost = sorted(set(range(self.num_blocks)) ^ known)
            raise InvariantError(
                "INV-blocks", f"blocks {lost[:8]} are lost or do not exist (pool of {self.num_blocks})"
            )
        if len(owners) != self._held_blocks:
            raise InvariantError("INV-blocks", f"{self._held_blocks} blocks counted as held, tables name {len(owners)}")
        if not 0 <= self._resident <= self._held_blocks * self.block_size:
            raise InvariantError("INV-tokens", f"{self._resident} tokens resident in {self._held_blocks} held blocks")
