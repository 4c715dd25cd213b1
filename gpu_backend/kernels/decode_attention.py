"""Attention of rows that compute one token, over a paged or a contiguous cache.

Legend: T tokens, H query heads, K kv heads, G = H / K, D head_dim, R rows, S splits, M the G query heads of a kv head
padded to what `tl.dot` takes, N tokens of a tile.

A program computes a chunk of a row for one kv head. Few rows would leave the GPU idle: theirs are cut into S chunks,
which the last program that is done with one puts together (flash decoding). The chunk follows from the row's own
length, on the device, so a CUDA graph fits any lengths; splits that a short row has no use for end at once.
"""

from __future__ import annotations

import math
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.kv_cache import LayerCache

TILE_BYTES = 16384  # of keys and as many of values; two tiles are on their way while one is computed
NUM_WARPS = 4
NUM_STAGES = 3
MERGE_ELEMENTS = 4096  # of parts that a merging program takes at a time
MIN_CHUNK = 256  # tokens
MAX_SPLITS = 16


@triton.jit
def _merge(
    out_ptr,
    stride_out_head,
    part_ptr,
    part_lse_ptr,
    count,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    GROUP: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Put together `count` parts [GROUP, D], which lie one after the other."""
    GROUP_PADDED: tl.constexpr = triton.next_power_of_2(GROUP)
    offs_g = tl.arange(0, GROUP_PADDED)
    offs_d = tl.arange(0, D_PADDED)
    inside = (offs_g < GROUP)[:, None] & (offs_d < D)[None, :]
    top = tl.full([GROUP_PADDED], -1e30, tl.float32)
    total = tl.zeros([GROUP_PADDED], tl.float32)
    out_GD = tl.zeros([GROUP_PADDED, D_PADDED], tl.float32)
    for start in range(0, count, PARTS):
        part = start + tl.arange(0, PARTS)
        line_PG = part[:, None] * GROUP + offs_g[None, :]
        live_PG = (part < count)[:, None] & (offs_g < GROUP)[None, :]
        # other programs wrote them: not through this one's L1
        lse_PG = tl.load(part_lse_ptr + line_PG, mask=live_PG, other=-1e30, cache_modifier=".cg")
        part_PGD = tl.load(
            part_ptr + line_PG[:, :, None] * D + offs_d[None, None, :],
            mask=live_PG[:, :, None] & (offs_d < D)[None, None, :],
            other=0.0,
            cache_modifier=".cg",
        )
        new_top = tl.maximum(top, tl.max(lse_PG, 0))
        weight_PG = tl.exp2(lse_PG - new_top[None, :])
        decay = tl.exp2(top - new_top)
        total = total * decay + tl.sum(weight_PG, 0)
        out_GD = out_GD * decay[:, None] + tl.sum(part_PGD * weight_PG[:, :, None], 0)
        top = new_top
    pointer = out_ptr + offs_g[:, None] * stride_out_head + offs_d[None, :]
    tl.store(pointer, (out_GD / total[:, None]).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _decode_kernel(
    q_ptr,
    keys_ptr,
    values_ptr,
    tables_ptr,
    seq_lens_ptr,
    out_ptr,
    part_ptr,
    part_lse_ptr,
    arrived_ptr,
    scale_log2,
    stride_q_token,
    stride_q_head,
    stride_out_token,
    stride_out_head,
    stride_cache_head,
    stride_cache_slot,
    stride_tables_row,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    GROUP: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    PARTS: tl.constexpr,
    MIN_CHUNK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PAGED: tl.constexpr,
):
    # the split comes last in the order of the grid, so that programs without work run beside the last that have some
    head, row, split = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    splits = tl.num_programs(2)
    item = row * tl.num_programs(0) + head
    seq_len = tl.load(seq_lens_ptr + row)
    chunk = tl.maximum(tl.cdiv(tl.cdiv(seq_len, splits), N) * N, MIN_CHUNK)
    num_chunks = tl.cdiv(seq_len, chunk)

    offs_m = tl.arange(0, M)
    offs_d = tl.arange(0, D_PADDED)
    inside = (offs_m < GROUP)[:, None] & (offs_d < D)[None, :]
    out_item_ptr = out_ptr + row * stride_out_token + head * GROUP * stride_out_head
    out_pointer = out_item_ptr + offs_m[:, None] * stride_out_head + offs_d[None, :]
    if split < num_chunks:
        q_item_ptr = q_ptr + row * stride_q_token + head * GROUP * stride_q_head
        q_MD = tl.load(q_item_ptr + offs_m[:, None] * stride_q_head + offs_d[None, :], mask=inside, other=0.0)
        begin = split * chunk
        end = tl.minimum(begin + chunk, seq_len)
        offs_n = tl.arange(0, N)
        table_ptr = tables_ptr + row * stride_tables_row
        head_offset = head.to(tl.int64) * stride_cache_head
        top = tl.full([M], float("-inf"), tl.float32)
        total = tl.zeros([M], tl.float32)
        out_MD = tl.zeros([M, D_PADDED], tl.float32)
        if PAGED:
            next_block = tl.load(table_ptr + (begin + offs_n) // BLOCK_SIZE, mask=begin + offs_n < end, other=0)
        else:
            base = tl.load(table_ptr).to(tl.int64) * BLOCK_SIZE
        for start in range(begin, end, N):
            token = start + offs_n
            live = token < end
            if PAGED:
                slot = next_block.to(tl.int64) * BLOCK_SIZE + token % BLOCK_SIZE
                # a tile ahead, so that keys and values need not wait for it
                next_block = tl.load(table_ptr + (token + N) // BLOCK_SIZE, mask=token + N < end, other=0)
            else:
                slot = base + token
            offset_ND = head_offset + slot[:, None] * stride_cache_slot + offs_d[None, :]
            mask_ND = live[:, None]
            if D < D_PADDED:
                mask_ND = mask_ND & (offs_d < D)[None, :]
            k_ND = tl.load(keys_ptr + offset_ND, mask=mask_ND, other=0.0)
            v_ND = tl.load(values_ptr + offset_ND, mask=mask_ND, other=0.0)
            score_MN = tl.dot(q_MD, tl.trans(k_ND), input_precision="ieee") * scale_log2
            score_MN = tl.where(live[None, :], score_MN, float("-inf"))
            new_top = tl.maximum(top, tl.max(score_MN, 1))
            weight_MN = tl.exp2(score_MN - new_top[:, None])
            decay = tl.exp2(top - new_top)
            total = total * decay + tl.sum(weight_MN, 1)
            out_MD = tl.dot(weight_MN.to(v_ND.dtype), v_ND, out_MD * decay[:, None], input_precision="ieee")
            top = new_top
        out_MD /= total[:, None]
        if num_chunks == 1:
            tl.store(out_pointer, out_MD.to(out_ptr.dtype.element_ty), mask=inside)
        else:
            first_line = item * splits * GROUP
            line_M = first_line + split * GROUP + offs_m
            tl.store(part_ptr + line_M[:, None] * D + offs_d[None, :], out_MD, mask=inside)
            tl.store(part_lse_ptr + line_M, top + tl.log2(total), mask=offs_m < GROUP)
            tl.debug_barrier()  # every thread's part is out before one of them says so
            if tl.atomic_add(arrived_ptr + item, 1, sem="acq_rel") == num_chunks - 1:
                _merge(
                    out_item_ptr,
                    stride_out_head,
                    part_ptr + first_line * D,
                    part_lse_ptr + first_line,
                    num_chunks,
                    D,
                    D_PADDED,
                    GROUP,
                    PARTS,
                )
    elif split == 0:
        tl.store(out_pointer, tl.zeros([M, D_PADDED], out_ptr.dtype.element_ty), mask=inside)


@cache
def _num_processors(device: torch.device) -> int:
    """Streaming multiprocessors; a few where the interpreter plays them."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


def num_splits(items: int, max_seq_len: int, num_processors: int) -> int:
    """How many chunks a row is cut into at most; items are pairs of a row and a kv head.

    One where the items alone keep the processors busy. Else plenty: short rows use fewer, and an idle program is cheap.
    """
    if 2 * items >= 3 * num_processors:
        return 1
    return min(MAX_SPLITS, 16 * num_processors // items, -(-max_seq_len // MIN_CHUNK))


def decode_attention(
    q_THD: Tensor, cache: LayerCache, batch: Batch, out_THD: Tensor, *, block_size: int, scale: float, paged: bool
) -> None:
    """Write rows [0, `batch.num_single_rows`) of `out_THD`; those of empty rows become zero.

    Args:
        q_THD: [T, H, D] in the type of the cache; token r is that of row r.
        paged: read through the block tables; else every row lies in one piece.

    Raises:
        ValueError: shapes, strides or types that the kernel does not take.
    """
    tokens, num_heads, head_dim = q_THD.shape
    num_kv_heads = cache.keys.shape[0]
    num_rows = min(batch.num_single_rows, tokens)
    if out_THD.shape != q_THD.shape or num_heads % num_kv_heads or cache.keys.shape[2] != head_dim:
        raise ValueError(
            f"q_THD {tuple(q_THD.shape)}, out_THD {tuple(out_THD.shape)} do not fit keys {tuple(cache.keys.shape)}"
        )
    if cache.values.shape != cache.keys.shape or cache.values.stride() != cache.keys.stride():
        raise ValueError(f"values {tuple(cache.values.shape)} must be laid out like keys {tuple(cache.keys.shape)}")
    if any(tensor.stride(2) != 1 for tensor in (q_THD, out_THD, cache.keys)):
        raise ValueError("the last dimension of q_THD, out_THD and the cache must be contiguous")
    if not q_THD.dtype == out_THD.dtype == cache.keys.dtype == cache.values.dtype:
        raise ValueError(f"q_THD is {q_THD.dtype}, out_THD {out_THD.dtype}, the cache {cache.keys.dtype}: must agree")
    if not 1 <= block_size <= 256 or block_size & (block_size - 1):
        raise ValueError(f"block_size={block_size} must be a power of two up to 256")
    if head_dim > 256:
        raise ValueError(f"head_dim={head_dim} must be at most 256")
    if not num_rows:
        return
    group, device = num_heads // num_kv_heads, q_THD.device
    padded_dim, padded_group = max(16, triton.next_power_of_2(head_dim)), triton.next_power_of_2(group)
    items = num_rows * num_kv_heads
    splits = num_splits(items, batch.max_seq_len, _num_processors(device))
    parts = items * splits if splits > 1 else 0
    _decode_kernel[(num_kv_heads, num_rows, splits)](
        q_THD,
        cache.keys,
        cache.values,
        batch.block_tables,
        batch.seq_lens,
        out_THD,
        torch.empty((parts, group, head_dim), dtype=torch.float32, device=device),
        torch.empty((parts, group), dtype=torch.float32, device=device),
        torch.zeros(min(items, parts), dtype=torch.int32, device=device),  # each launch its own: they may overlap
        scale * math.log2(math.e),
        q_THD.stride(0),
        q_THD.stride(1),
        out_THD.stride(0),
        out_THD.stride(1),
        cache.keys.stride(0),
        cache.keys.stride(1),
        batch.block_tables.stride(0),
        D=head_dim,
        D_PADDED=padded_dim,
        GROUP=group,
        M=max(16, padded_group),
        N=min(128, max(16, TILE_BYTES // (padded_dim * q_THD.element_size()))),
        PARTS=max(1, min(MAX_SPLITS, MERGE_ELEMENTS // (padded_group * padded_dim))),
        MIN_CHUNK=MIN_CHUNK,
        BLOCK_SIZE=block_size,
        PAGED=paged,
        num_warps=NUM_WARPS,
        num_stages=NUM_STAGES,
    )


def decode_attention_reference(
    q_THD: Tensor, cache: LayerCache, batch: Batch, out_THD: Tensor, *, block_size: int, scale: float, paged: bool
) -> None:
    """`decode_attention` in plain torch, computed in float32."""
    num_kv_heads = cache.keys.shape[0]
    offsets = torch.arange(block_size, device=q_THD.device)
    for row in range(min(batch.num_single_rows, len(q_THD))):
        seq_len = int(batch.seq_lens[row])
        if paged:
            blocks = batch.block_tables[row, : -(-seq_len // block_size)].long()
            slots = (blocks[:, None] * block_size + offsets).flatten()[:seq_len]
        else:
            slots = int(batch.block_tables[row, 0]) * block_size + torch.arange(seq_len, device=q_THD.device)
        q_KGD = q_THD[row].float().reshape(num_kv_heads, -1, q_THD.shape[2])
        weight_KGN = torch.softmax(scale * q_KGD @ cache.keys[:, slots].float().mT, dim=-1)
        out_THD[row] = (weight_KGN @ cache.values[:, slots].float()).flatten(0, 1)
