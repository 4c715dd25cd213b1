"""Keys and values of new tokens go to their slots. Legend: T tokens, K kv heads, D head_dim."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_backend.kv_cache import LayerCache

HEADS = 16  # heads a program


@triton.jit
def _write_kernel(
    k_ptr,
    v_ptr,
    keys_ptr,
    values_ptr,
    slot_mapping_ptr,
    num_heads,
    stride_k_token,
    stride_k_head,
    stride_v_token,
    stride_v_head,
    stride_cache_head,
    stride_cache_slot,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    HEADS: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping_ptr + token)
    if slot >= 0:
        head = (tl.program_id(1) * HEADS + tl.arange(0, HEADS)).to(tl.int64)[:, None]
        column = tl.arange(0, D_PADDED)[None, :]
        mask = (head < num_heads) & (column < D)
        k_KD = tl.load(k_ptr + token * stride_k_token + head * stride_k_head + column, mask=mask)
        v_KD = tl.load(v_ptr + token * stride_v_token + head * stride_v_head + column, mask=mask)
        target = head * stride_cache_head + slot * stride_cache_slot + column
        tl.store(keys_ptr + target, k_KD, mask=mask)
        tl.store(values_ptr + target, v_KD, mask=mask)


def write_kv(k_TKD: Tensor, v_TKD: Tensor, cache: LayerCache, slot_mapping: Tensor) -> None:
    """Write token t's key and value of every head into slot ``slot_mapping[t]``.

    Args:
        k_TKD, v_TKD: in the type of the cache; the last dimension contiguous.
        slot_mapping: [T] int64; -1 writes nothing.

    Raises:
        ValueError: shapes, strides or types do not fit.
    """
    num_kv_heads, _, head_dim = cache.keys.shape
    tokens = len(k_TKD)
    if k_TKD.shape != v_TKD.shape or k_TKD.shape[1:] != (num_kv_heads, head_dim):
        raise ValueError(
            f"k_TKD {tuple(k_TKD.shape)} and v_TKD {tuple(v_TKD.shape)} must be (tokens, {num_kv_heads}, {head_dim})"
        )
    if cache.values.shape != cache.keys.shape or cache.values.stride() != cache.keys.stride():
        raise ValueError(f"values {tuple(cache.values.shape)} must be laid out like keys {tuple(cache.keys.shape)}")
    if any(tensor.stride(2) != 1 for tensor in (k_TKD, v_TKD, cache.keys)):
        raise ValueError("the last dimension of k_TKD, v_TKD and the cache must be contiguous")
    if not k_TKD.dtype == v_TKD.dtype == cache.keys.dtype == cache.values.dtype:
        raise ValueError(f"k_TKD is {k_TKD.dtype}, v_TKD {v_TKD.dtype}, the cache {cache.keys.dtype}: must agree")
    if slot_mapping.shape != (tokens,) or slot_mapping.dtype != torch.int64:
        raise ValueError(f"slot_mapping {tuple(slot_mapping.shape)} {slot_mapping.dtype} must be ({tokens},) int64")
    _write_kernel[(tokens, triton.cdiv(num_kv_heads, HEADS))](
        k_TKD,
        v_TKD,
        cache.keys,
        cache.values,
        slot_mapping,
        num_kv_heads,
        k_TKD.stride(0),
        k_TKD.stride(1),
        v_TKD.stride(0),
        v_TKD.stride(1),
        cache.keys.stride(0),
        cache.keys.stride(1),
        D=head_dim,
        D_PADDED=triton.next_power_of_2(head_dim),
        HEADS=HEADS,
    )


def write_kv_reference(k_TKD: Tensor, v_TKD: Tensor, cache: LayerCache, slot_mapping: Tensor) -> None:
    """`write_kv` in plain torch."""
    written = slot_mapping >= 0
    cache.keys[:, slot_mapping[written]] = k_TKD[written].transpose(0, 1)
    cache.values[:, slot_mapping[written]] = v_TKD[written].transpose(0, 1)
