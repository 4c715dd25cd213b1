"""Blocks copied within a cache, or to and from a dense buffer, for all layers and heads at once.

Legend: L layers, K kv heads, S slots, B block_size, D head_dim, P pairs or blocks. A pool is [L, K, S, D] with the
blocks' slots side by side, the buffer [P, 2, L, K, B, D]: keys, then values; a block of it is one contiguous piece.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_backend.kv_cache import KVCache

CHUNK = 2048  # elements a program moves of keys and of values


@triton.jit
def _move_kernel(
    keys_ptr,
    values_ptr,
    buffer_ptr,
    blocks_ptr,
    num_heads,
    stride_pool_layer,
    stride_pool_head,
    stride_buffer_block,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    SCATTER: tl.constexpr,
):
    nth = tl.program_id(0).to(tl.int64)
    piece = tl.program_id(1).to(tl.int64)  # a layer and a head
    offset = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    inside = offset < BLOCK
    block = tl.load(blocks_ptr + nth).to(tl.int64)
    pool = piece // num_heads * stride_pool_layer + piece % num_heads * stride_pool_head + block * BLOCK + offset
    keys = buffer_ptr + nth * stride_buffer_block + piece * BLOCK + offset
    values = keys + stride_buffer_block // 2
    if SCATTER:
        tl.store(keys_ptr + pool, tl.load(keys, mask=inside), mask=inside)
        tl.store(values_ptr + pool, tl.load(values, mask=inside), mask=inside)
    else:
        tl.store(keys, tl.load(keys_ptr + pool, mask=inside), mask=inside)
        tl.store(values, tl.load(values_ptr + pool, mask=inside), mask=inside)


def buffer_shape(cache: KVCache, num_blocks: int) -> tuple[int, ...]:
    """Shape of the buffer that holds `num_blocks` blocks of `cache`."""
    layers, heads, _, head_dim = cache.keys.shape
    return (num_blocks, 2, layers, heads, cache.block_size, head_dim)


def _move(cache: KVCache, blocks: Tensor, buffer: Tensor, *, scatter: bool) -> None:
    layers, heads, _, head_dim = cache.keys.shape
    if buffer.shape != buffer_shape(cache, len(blocks)) or not buffer.is_contiguous():
        raise ValueError(f"buffer {tuple(buffer.shape)} must be contiguous {buffer_shape(cache, len(blocks))}")
    if buffer.dtype != cache.keys.dtype or buffer.device != cache.keys.device:
        raise ValueError(f"buffer is {buffer.dtype} on {buffer.device}, the cache {cache.keys.dtype}: must agree")
    if blocks.dim() != 1 or blocks.dtype != torch.int32:
        raise ValueError(f"blocks {tuple(blocks.shape)} {blocks.dtype} must be a vector of int32")
    if not cache.keys.stride() == cache.values.stride() or cache.keys.stride()[2:] != (head_dim, 1):
        raise ValueError(f"the pool has strides {cache.keys.stride()}; slots must lie side by side")
    size = cache.block_size * head_dim
    if not len(blocks):
        return
    _move_kernel[(len(blocks), layers * heads, triton.cdiv(size, CHUNK))](
        cache.keys,
        cache.values,
        buffer,
        blocks,
        heads,
        cache.keys.stride(0),
        cache.keys.stride(1),
        buffer.stride(0),
        BLOCK=size,
        CHUNK=min(CHUNK, triton.next_power_of_2(size)),
        SCATTER=scatter,
    )


def gather_blocks(cache: KVCache, blocks: Tensor, out: Tensor) -> None:
    """Copy blocks of all layers and heads from the cache into a buffer.

    Args:
        blocks: [P] int32 block ids.
        out: [P, 2, L, K, B, D] in the type of the cache.

    Raises:
        ValueError: shapes, strides or types do not fit.
    """
    _move(cache, blocks, out, scatter=False)


def scatter_blocks(cache: KVCache, blocks: Tensor, source: Tensor) -> None:
    """The reverse of `gather_blocks`; no block id may come twice."""
    _move(cache, blocks, source, scatter=True)


def copy_blocks(cache: KVCache, pairs: Tensor) -> None:
    """Copy block ``pairs[i, 0]`` to block ``pairs[i, 1]`` in all layers and heads: all reads come before all writes.

    Args:
        pairs: [P, 2] int32 (source, destination); no destination may come twice.

    Raises:
        ValueError: shapes, strides or types do not fit.
    """
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        raise ValueError(f"pairs {tuple(pairs.shape)} must be (pairs, 2)")
    buffer = torch.empty(buffer_shape(cache, len(pairs)), dtype=cache.keys.dtype, device=cache.keys.device)
    gather_blocks(cache, pairs[:, 0].contiguous(), buffer)
    scatter_blocks(cache, pairs[:, 1].contiguous(), buffer)


def copy_blocks_reference(cache: KVCache, pairs: Tensor) -> None:
    """`copy_blocks` in plain torch."""
    offsets = torch.arange(cache.block_size, device=pairs.device)
    source, target = ((column.long()[:, None] * cache.block_size + offsets).flatten() for column in pairs.unbind(1))
    cache.keys[:, :, target] = cache.keys[:, :, source]
    cache.values[:, :, target] = cache.values[:, :, source]


def gather_blocks_reference(cache: KVCache, blocks: Tensor) -> Tensor:
    """The buffer that `gather_blocks` fills, in plain torch."""
    layers, heads, num_slots, head_dim = cache.keys.shape
    used = num_slots // cache.block_size * cache.block_size
    pools = torch.stack((cache.keys, cache.values))[:, :, :, :used]
    by_block = pools.reshape(2, layers, heads, -1, cache.block_size, head_dim)
    return by_block[:, :, :, blocks.long()].movedim(3, 0)
