"""How many slots of each block hold a token, counted from device memory alone: checks the books of an allocator.

A pool whose keys were filled with NaN shows where a key was written since. A slot counts if its key is there in every
layer and head. Legend: B blocks, S slots, D head_dim.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from gpu_backend.kv_cache import KVCache

SLOTS = 32  # slots a program


@triton.jit
def _written_kernel(
    keys_ptr,
    written_ptr,
    num_slots,
    num_heads,
    num_pieces,
    stride_layer,
    stride_head,
    stride_slot,
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
    tl.store(written_ptr + slot, (missing == 0).to(tl.int32), mask=exists)


def poison(cache: KVCache) -> None:
    """Fill the keys with NaN, so that `count_slots` sees what is written from now on."""
    cache.keys.fill_(float("nan"))


def count_slots(cache: KVCache) -> Tensor:
    """[B] int64 slots of each block written since `poison`; a last, shorter block is one too."""
    layers, heads, num_slots, head_dim = cache.keys.shape
    written_S = torch.empty(num_slots, dtype=torch.int32, device=cache.keys.device)
    _written_kernel[(triton.cdiv(num_slots, SLOTS),)](
        cache.keys,
        written_S,
        num_slots,
        heads,
        layers * heads,
        *cache.keys.stride()[:3],
        D=head_dim,
        D_PADDED=triton.next_power_of_2(head_dim),
        SLOTS=SLOTS,
    )
    return _by_block(written_S, cache.block_size)


def count_slots_reference(cache: KVCache) -> Tensor:
    """`count_slots` in plain torch."""
    return _by_block(~cache.keys.isnan().any(-1).any(0).any(0), cache.block_size)


def _by_block(written_S: Tensor, block_size: int) -> Tensor:
    return F.pad(written_S, (0, -len(written_S) % block_size)).view(-1, block_size).sum(1)
