"""Rotary positions and the cache write in one pass over the merged projection.

Legend: T tokens, H query heads, K kv heads, D head_dim, W = (H + 2K) * D, N positions of the tables. A row of `qkv_TW`
holds the query heads, the key heads, the value heads. Pairs to rotate lie half a head apart: (x[i], x[i + D / 2]).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_backend.kv_cache import LayerCache

HEADS = 16  # heads a program


def rotary_tables(max_len: int, head_dim: int, theta: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines, [N, D / 2] float32, of every position below `max_len` (RoFormer, arXiv:2104.09864)."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
    frequencies = 1.0 / theta**exponents
    angles = torch.arange(max_len, dtype=torch.float32, device=device)[:, None] * frequencies
    return angles.cos(), angles.sin()


@triton.jit
def _rotary_kernel(
    qkv_ptr,
    keys_ptr,
    values_ptr,
    positions_ptr,
    slot_mapping_ptr,
    cos_ptr,
    sin_ptr,
    num_heads,
    num_kv_heads,
    stride_qkv_token,
    stride_cache_head,
    stride_cache_slot,
    HALF: tl.constexpr,
    HALF_PADDED: tl.constexpr,
    HEADS: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    column = tl.arange(0, HALF_PADDED)[None, :]
    inside = column < HALF
    is_query = head < num_heads
    is_key = (head >= num_heads) & (head < num_heads + num_kv_heads)
    is_value = (head >= num_heads + num_kv_heads) & (head < num_heads + 2 * num_kv_heads)

    angle = tl.load(positions_ptr + token).to(tl.int64) * HALF + column
    cos = tl.where(is_value, 1.0, tl.load(cos_ptr + angle, mask=inside, other=0.0))
    sin = tl.where(is_value, 0.0, tl.load(sin_ptr + angle, mask=inside, other=0.0))
    source = qkv_ptr + token * stride_qkv_token + head * (2 * HALF) + column
    mask = inside & (is_query | is_key | is_value)
    low = tl.load(source, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(source + HALF, mask=mask, other=0.0).to(tl.float32)
    new_low = (low * cos - high * sin).to(qkv_ptr.dtype.element_ty)
    new_high = (high * cos + low * sin).to(qkv_ptr.dtype.element_ty)

    tl.store(source, new_low, mask=inside & is_query)
    tl.store(source + HALF, new_high, mask=inside & is_query)
    slot = tl.load(slot_mapping_ptr + token)
    if slot >= 0:
        target = slot * stride_cache_slot + column
        key = keys_ptr + (head - num_heads).to(tl.int64) * stride_cache_head + target
        mask = inside & is_key
        tl.store(key, new_low.to(keys_ptr.dtype.element_ty), mask=mask)
        tl.store(key + HALF, new_high.to(keys_ptr.dtype.element_ty), mask=mask)
        value = values_ptr + (head - num_heads - num_kv_heads).to(tl.int64) * stride_cache_head + target
        mask = inside & is_value
        tl.store(value, new_low.to(values_ptr.dtype.element_ty), mask=mask)
        tl.store(value + HALF, new_high.to(values_ptr.dtype.element_ty), mask=mask)


def rotate_and_write(
    qkv_TW: Tensor, cache: LayerCache, positions: Tensor, slot_mapping: Tensor, cos_ND: Tensor, sin_ND: Tensor
) -> Tensor:
    """[T, H, D] rotated queries, a view of `qkv_TW`; rotated keys and the values go to their slots of the cache.

    Args:
        qkv_TW: changed in place, in its query part.
        positions: [T] int32, each below N.
        slot_mapping: [T] int64; -1 writes nothing.
        cos_ND, sin_ND: [N, D / 2] float32, see `rotary_tables`.

    Raises:
        ValueError: shapes, types or strides do not fit.
    """
    num_kv_heads, _, head_dim = cache.keys.shape
    tokens, width = qkv_TW.shape
    num_heads = width // head_dim - 2 * num_kv_heads
    if num_heads < 1 or width % head_dim or head_dim % 2 or not qkv_TW.is_contiguous():
        raise ValueError(f"qkv_TW {tuple(qkv_TW.shape)} must hold whole heads of {head_dim}, beyond 2 x {num_kv_heads}")
    if cache.values.shape != cache.keys.shape or cache.values.stride() != cache.keys.stride():
        raise ValueError(f"values {tuple(cache.values.shape)} must be laid out like keys {tuple(cache.keys.shape)}")
    if cache.keys.stride(2) != 1:
        raise ValueError(f"keys have stride {cache.keys.stride(2)} between elements of a head, must be 1")
    if positions.shape != (tokens,) or slot_mapping.shape != (tokens,) or slot_mapping.dtype != torch.int64:
        raise ValueError(f"positions and slot_mapping (int64) must be ({tokens},)")
    if cos_ND.shape != sin_ND.shape or cos_ND.shape[1] * 2 != head_dim or cos_ND.dtype != torch.float32:
        raise ValueError(f"cos_ND {tuple(cos_ND.shape)} must be float32 [positions, {head_dim // 2}], sin_ND alike")
    half = head_dim // 2
    _rotary_kernel[(tokens, triton.cdiv(num_heads + 2 * num_kv_heads, HEADS))](
        qkv_TW,
        cache.keys,
        cache.values,
        positions,
        slot_mapping,
        cos_ND,
        sin_ND,
        num_heads,
        num_kv_heads,
        qkv_TW.stride(0),
        cache.keys.stride(0),
        cache.keys.stride(1),
        HALF=half,
        HALF_PADDED=triton.next_power_of_2(half),
        HEADS=HEADS,
        num_warps=4,
    )
    return qkv_TW[:, : num_heads * head_dim].view(tokens, num_heads, head_dim)


def rotate_and_write_reference(
    qkv_TW: Tensor, cache: LayerCache, positions: Tensor, slot_mapping: Tensor, cos_ND: Tensor, sin_ND: Tensor
) -> Tensor:
    """`rotate_and_write` in plain torch; leaves `qkv_TW` alone."""
    num_kv_heads, _, head_dim = cache.keys.shape
    heads_TXD = qkv_TW.float().view(len(qkv_TW), -1, head_dim)
    rotated, values = heads_TXD[:, :-num_kv_heads], heads_TXD[:, -num_kv_heads:]
    cos, sin = cos_ND[positions.long(), None], sin_ND[positions.long(), None]
    low, high = rotated.chunk(2, dim=-1)
    rotated = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(qkv_TW.dtype)
    written = slot_mapping >= 0
    slots = slot_mapping[written]
    cache.keys[:, slots] = rotated[written, -num_kv_heads:].transpose(0, 1).to(cache.keys.dtype)
    cache.values[:, slots] = values[written].transpose(0, 1).to(cache.values.dtype)
    return rotated[:, :-num_kv_heads]
