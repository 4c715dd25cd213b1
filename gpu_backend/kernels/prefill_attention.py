"""Causal attention of rows of many tokens over the cache: prompts, chunks, continuations.

FlashAttention-2 (arXiv 2307.08691) over block tables. A program owns one KV head and the queries of its whole group
for `query_tile` tokens, so M = tokens x group: keys and values are read once for the group and short rows of a grouped
model still fill a tile.

Legend: T tokens, H query heads, K KV heads, S slots, D head_dim, M queries of a tile, N keys of a tile.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.kv_cache import LayerCache

BLOCK_M = 64  # one warpgroup: two programs fit an SM, the softmax of one runs under the products of the other


def query_tile(group: int) -> int:
    """Tokens a tile for `group` query heads a KV head."""
    return max(1, BLOCK_M // group)


@triton.jit
def _prefill_attention_kernel(
    out_ptr,
    q_ptr,
    keys_ptr,
    values_ptr,
    block_tables_ptr,
    query_tiles_ptr,
    query_start_loc_ptr,
    seq_lens_ptr,
    scale_log2,
    stride_out_token,
    stride_out_head,
    stride_q_token,
    stride_q_head,
    stride_keys_head,
    stride_keys_slot,
    stride_values_head,
    stride_values_slot,
    stride_block_tables_row,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    QUERY_TILE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PAGED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    kv_head = tl.program_id(0)
    tile = tl.num_programs(1) - 1 - tl.program_id(1)  # the longest tiles of a row start first
    row = tl.load(query_tiles_ptr + 2 * tile)
    if row < 0:
        return
    first = tl.load(query_tiles_ptr + 2 * tile + 1)
    row_start = tl.load(query_start_loc_ptr + row)
    num_tokens = tl.load(query_start_loc_ptr + row + 1) - row_start
    context = tl.load(seq_lens_ptr + row) - num_tokens

    offs_m = tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_DIM_PADDED)
    token_M = first + offs_m // GROUP
    head_M = kv_head * GROUP + offs_m % GROUP
    flat_M = (row_start + token_M).to(tl.int64)
    mask_MD = ((offs_m < QUERY_TILE * GROUP) & (token_M < num_tokens))[:, None] & (offs_d < HEAD_DIM)[None, :]
    q_offset_M = flat_M * stride_q_token + head_M * stride_q_head
    q_MD = tl.load(q_ptr + q_offset_M[:, None] + offs_d[None, :], mask=mask_MD, other=0.0)

    visible_M = context + token_M + 1
    last = context + tl.minimum(first + QUERY_TILE, num_tokens) - 1
    keys_ptr += kv_head.to(tl.int64) * stride_keys_head
    values_ptr += kv_head.to(tl.int64) * stride_values_head
    table_ptr = block_tables_ptr + row.to(tl.int64) * stride_block_tables_row
    offs_n = tl.arange(0, BLOCK_N)
    if PAGED:
        last_page = last // BLOCK_SIZE
        next_block_N = tl.load(table_ptr + tl.minimum(offs_n // BLOCK_SIZE, last_page))
    else:
        base = tl.load(table_ptr).to(tl.int64) * BLOCK_SIZE
        keys_ptr += base * stride_keys_slot
        values_ptr += base * stride_values_slot

    acc_MD = tl.zeros([BLOCK_M, HEAD_DIM_PADDED], tl.float32)
    max_M = tl.full([BLOCK_M], float("-inf"), tl.float32)
    sum_M = tl.zeros([BLOCK_M], tl.float32)
    for start in tl.range(0, last + 1, BLOCK_N):
        pos_N = start + offs_n
        if PAGED:
            # block ids are loaded a tile ahead, so that the loads of keys never wait for them
            block_N = next_block_N.to(tl.int64)
            if BLOCK_N % BLOCK_SIZE == 0:
                page_N = (start + BLOCK_N) // BLOCK_SIZE + offs_n // BLOCK_SIZE
                within_N = offs_n % BLOCK_SIZE
            else:
                page_N = (pos_N + BLOCK_N) // BLOCK_SIZE
                within_N = pos_N % BLOCK_SIZE
            next_block_N = tl.load(table_ptr + tl.minimum(page_N, last_page))
            key_offset_N = block_N * (BLOCK_SIZE * stride_keys_slot) + within_N * stride_keys_slot
            value_offset_N = block_N * (BLOCK_SIZE * stride_values_slot) + within_N * stride_values_slot
        else:
            key_offset_N = pos_N.to(tl.int64) * stride_keys_slot
            value_offset_N = pos_N.to(tl.int64) * stride_values_slot
        written_ND = (pos_N <= last)[:, None] & (offs_d < HEAD_DIM)[None, :]

        k_ND = tl.load(keys_ptr + key_offset_N[:, None] + offs_d[None, :], mask=written_ND, other=0.0)
        score_MN = tl.dot(q_MD, k_ND.T, input_precision=PRECISION)
        if start + BLOCK_N > context + first + 1:  # some token does not see the whole tile
            score_MN = tl.where(pos_N[None, :] < visible_M[:, None], score_MN, float("-inf"))
        new_max_M = tl.maximum(max_M, tl.max(score_MN, 1) * scale_log2)
        weight_MN = tl.exp2(score_MN * scale_log2 - new_max_M[:, None])
        decay_M = tl.exp2(max_M - new_max_M)
        sum_M = sum_M * decay_M + tl.sum(weight_MN, 1)
        acc_MD = acc_MD * decay_M[:, None]
        v_ND = tl.load(values_ptr + value_offset_N[:, None] + offs_d[None, :], mask=written_ND, other=0.0)
        acc_MD = tl.dot(weight_MN.to(v_ND.dtype), v_ND, acc_MD, input_precision=PRECISION)
        max_M = new_max_M
    out_MD = (acc_MD / sum_M[:, None]).to(out_ptr.dtype.element_ty)
    out_offset_M = flat_M * stride_out_token + head_M * stride_out_head
    tl.store(out_ptr + out_offset_M[:, None] + offs_d[None, :], out_MD, mask=mask_MD)


def prefill_attention(
    q_THD: Tensor, cache: LayerCache, batch: Batch, out_THD: Tensor, *, block_size: int, scale: float, paged: bool
) -> None:
    """Attention of every row that `batch.query_tiles` names, into its tokens of `out_THD`; the others stay as they are.

    Args:
        q_THD: [T, H, D] queries, any strides but the last.
        cache: keys and values [K, S, D] of the same type; those of the batch's tokens are written already.
        batch: its `query_tile` is `query_tile(H // K)`.
        out_THD: [T, H, D] output.
        block_size: tokens a block.
        scale: factor of the scores, positive.
        paged: slots by block tables; else a row begins at its first block and is contiguous.

    Raises:
        ValueError: shapes, strides or types that do not fit.
    """
    num_heads, head_dim = q_THD.shape[1:]
    num_kv_heads = cache.keys.shape[0]
    if num_heads % num_kv_heads or cache.keys.shape != cache.values.shape or cache.keys.shape[2] != head_dim:
        raise ValueError(
            f"queries {tuple(q_THD.shape)}, keys {tuple(cache.keys.shape)}, values {tuple(cache.values.shape)}"
        )
    if out_THD.shape != q_THD.shape:
        raise ValueError(f"output {tuple(out_THD.shape)}, queries {tuple(q_THD.shape)}")
    if any(tensor.stride(-1) != 1 for tensor in (q_THD, out_THD, *cache)):
        raise ValueError("the head dimension of queries, output, keys and values has to be contiguous")
    if not q_THD.dtype == cache.keys.dtype == cache.values.dtype:
        raise ValueError(f"queries {q_THD.dtype}, keys {cache.keys.dtype}, values {cache.values.dtype}: not one type")
    group = num_heads // num_kv_heads
    if batch.query_tile != query_tile(group):
        raise ValueError(f"query tiles of {batch.query_tile} tokens, the kernel has {query_tile(group)} a tile")
    num_tiles = batch.query_tiles.shape[0]
    if num_tiles == 0:
        return

    padded = max(16, triton.next_power_of_2(head_dim))
    exact = q_THD.dtype == torch.float32
    block_n, num_stages = (16, 2) if exact else (64, 3) if padded <= 128 else (32, 3)
    _prefill_attention_kernel[(num_kv_heads, num_tiles)](
        out_THD,
        q_THD,
        cache.keys,
        cache.values,
        batch.block_tables,
        batch.query_tiles,
        batch.query_start_loc,
        batch.seq_lens,
        scale * math.log2(math.e),
        out_THD.stride(0),
        out_THD.stride(1),
        q_THD.stride(0),
        q_THD.stride(1),
        cache.keys.stride(0),
        cache.keys.stride(1),
        cache.values.stride(0),
        cache.values.stride(1),
        batch.block_tables.stride(0),
        GROUP=group,
        HEAD_DIM=head_dim,
        HEAD_DIM_PADDED=padded,
        BLOCK_SIZE=block_size,
        QUERY_TILE=query_tile(group),
        BLOCK_M=max(BLOCK_M, triton.next_power_of_2(group)),
        BLOCK_N=block_n,
        PAGED=paged,
        PRECISION="ieee" if exact else "tf32",
        num_warps=4,
        num_stages=num_stages,
    )


def prefill_attention_reference(
    q_THD: Tensor, cache: LayerCache, batch: Batch, out_THD: Tensor, *, block_size: int, scale: float, paged: bool
) -> None:
    """The same in float32 PyTorch."""
    group = q_THD.shape[1] // cache.keys.shape[0]
    for row in sorted({row for row in batch.query_tiles[:, 0].tolist() if row >= 0}):
        begin, end = batch.query_start_loc[row : row + 2].tolist()
        seq_len = int(batch.seq_lens[row])
        position = torch.arange(seq_len, device=q_THD.device)
        table = batch.block_tables[row].long()
        slot = table[position // block_size] * block_size + position % block_size
        if not paged:
            slot = table[0] * block_size + position
        k_HND, v_HND = (kv[:, slot].float().repeat_interleave(group, dim=0) for kv in cache)
        score_HTN = torch.einsum("thd,hnd->htn", q_THD[begin:end].float(), k_HND) * scale
        hidden_TN = position > position[seq_len - (end - begin) :, None]
        weight_HTN = score_HTN.masked_fill(hidden_TN, float("-inf")).softmax(-1)
        out_THD[begin:end] = torch.einsum("htn,hnd->thd", weight_HTN, v_HND).to(out_THD.dtype)
