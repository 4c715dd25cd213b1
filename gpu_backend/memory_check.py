"""What lies in the pool, counted on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_backend.kernels.count_slots import count_slots, poison
from gpu_backend.kv_cache import KVCache
from kvsim.errors import InvariantError
from kvsim.plan import StepPlan


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

    def count(self, plan: StepPlan, resident: int) -> None:
        """Compare what is written with the tokens that the step leaves behind.

        Raises:
            InvariantError: they differ.
        """
        held = self._tensor([block for table in plan.tables.values() for block in table])
        inside, outside = count_slots(self._cache, held)
        if inside != resident or outside:
            raise InvariantError(
                "INV-tokens",
                f"step {plan.step}: {inside} slots of held and {outside} of free blocks are written, the plan says "
                f"{resident} and 0",
            )

    def _tensor(self, blocks: list[int]) -> Tensor:
        return torch.tensor(blocks, dtype=torch.int64, device=self._cache.keys.device)
