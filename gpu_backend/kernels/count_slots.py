"""How many slots of a pool hold a token, counted from device memory alone: checks the books of an allocator.

A pool whose keys were filled with NaN shows where a key was written since. A slot counts if its key is there in every
layer and head. Legend: L layers, K kv heads, S slots, D head_dim.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_backend.kv_cache import KVCache

SLOTS = 32  # slots a program


class SlotCount(NamedTuple):
    """Slots written inside and outside of some blocks."""

    inside: int
    outside: int


@triton.jit
def _count_kernel(
    keys_ptr,
    is_inside_ptr,
    counts_ptr,
    num_slots,
    num_heads,
    num_pieces,
    stride_layer,
    stride_head,
    stride_slot,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    SLOTS: tl.constexpr,
):
    slot = tl.program_id(0).to(tl.int64) * SLOTS + tl.arange(0, SLOTS)
    column = tl.arange(0, D_PADDED)
    exists = slot < num_slots
    mask = exists[:, None] & (column < D)[None, :]
    offset = slot[:, None] * stride_slot + column[None, :]
    missing = tl.zeros([SLOTS], tl.int32)
    for piece in range(num_pieces):  # a layer and a head
        start = (piece // num_heads).to(tl.int64) * stride_layer + (piece % num_heads).to(tl.int64) * stride_head
        key = tl.load(keys_ptr + start + offset, mask=mask, other=0.0)
        missing += tl.sum((key != key).to(tl.int32), 1)  # NaN differs from itself
    written = exists & (missing == 0)
    inside = tl.load(is_inside_ptr + slot // BLOCK_SIZE, mask=exists, other=0) != 0
    tl.atomic_add(counts_ptr, tl.sum((written & inside).to(tl.int32), 0))
    tl.atomic_add(counts_ptr + 1, tl.sum((written & (inside == 0)).to(tl.int32), 0))


def poison(cache: KVCache) -> None:
    """Fill the keys with NaN, so that `count_slots` sees what is written from now on."""
    cache.keys.fill_(float("nan"))


def count_slots(cache: KVCache, blocks: Tensor) -> SlotCount:
    """Slots written since `poison`, inside and outside of `blocks`.

    Args:
        blocks: [any] int64 or int32 ids of distinct blocks, on the device of the cache.

    Raises:
        ValueError: a block is outside of the pool.
    """
    layers, heads, num_slots, head_dim = cache.keys.shape
    num_blocks = triton.cdiv(num_slots, cache.block_size)
    if blocks.numel() and not 0 <= int(blocks.min()) <= int(blocks.max()) < num_blocks:
        raise ValueError(f"blocks reach from {int(blocks.min())} to {int(blocks.max())}, the pool has {num_blocks}")
    is_inside = torch.zeros(num_blocks, dtype=torch.int32, device=cache.keys.device)
    is_inside[blocks.long()] = 1
    counts = torch.zeros(2, dtype=torch.int32, device=cache.keys.device)
    _count_kernel[(triton.cdiv(num_slots, SLOTS),)](
        cache.keys,
        is_inside,
        counts,
        num_slots,
        heads,
        layers * heads,
        *cache.keys.stride()[:3],
        BLOCK_SIZE=cache.block_size,
        D=head_dim,
        D_PADDED=triton.next_power_of_2(head_dim),
        SLOTS=SLOTS,
    )
    return SlotCount(*counts.tolist())


def count_slots_reference(cache: KVCache, blocks: Tensor) -> SlotCount:
    """`count_slots` in plain torch."""
    written = ~cache.keys.isnan().any(-1).any(0).any(0)
    inside = torch.isin(torch.arange(cache.num_slots, device=written.device) // cache.block_size, blocks.long())
    return SlotCount(int((written & inside).sum()), int((written & ~inside).sum()))
