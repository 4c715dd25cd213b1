"""What lies in the pool, counted on the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gpu_backend.kernels.count_slots import count_slots, poison
from gpu_backend.kv_cache import KVCache
from kvsim.errors import InvariantError
from kvsim.plan import IntArray, StepPlan


class MemoryCheck:
    """Keeps every slot that holds no token poisoned, so that the written ones can be counted."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._held: dict[int, list[int]] = {}
        poison(cache)

    def poison_freed(self, plan: StepPlan) -> None:
        """Poison the blocks of those whose memory was given back since the last step."""
        gone = [seq_id for seq_id in self._held if seq_id in plan.released or seq_id not in plan.tables]
        blocks = self._tensor([block for seq_id in gone for block in self._held.pop(seq_id)])
        size = self._cache.block_size
        slots = (blocks[:, None] * size + torch.arange(size, device=blocks.device)).flatten()
        self._cache.keys[:, :, slots] = torch.nan
        self._held.update((seq_id, list(table)) for seq_id, table in plan.tables.items())

    def count(self, plan: StepPlan, stored: IntArray) -> None:
        """Compare what is written with the tokens that the step leaves behind.

        Args:
            stored: tokens of each sequence of ``plan.tables``.

        Raises:
            InvariantError: the blocks of a sequence hold more or fewer, or there are others outside or in two tables.
        """
        tables = list(plan.tables.values())
        by_block = count_slots(self._cache)
        owner = self._tensor([index for index, table in enumerate(tables) for _ in table])
        blocks = self._tensor([block for table in tables for block in table])
        written = torch.zeros(len(tables), dtype=by_block.dtype, device=by_block.device)
        counts = written.index_add(0, owner, by_block[blocks]).cpu().numpy()
        wrong = (counts != stored).nonzero()[0]
        if len(wrong):
            seq_id = list(plan.tables)[wrong[0]]
            raise InvariantError(
                "INV-tokens",
                f"step {plan.step}: {counts[wrong[0]]} slots in the blocks of sequence {seq_id} are written, the plan "
                f"says {stored[wrong[0]]}",
            )
        total = int(by_block.sum())
        if total != stored.sum():
            raise InvariantError(
                "INV-tokens",
                f"step {plan.step}: {total} slots of the pool are written, all sequences together have "
                f"{stored.sum()} tokens",
            )

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.from_numpy(np.array(values, dtype=np.int64)).to(self._cache.keys.device)
