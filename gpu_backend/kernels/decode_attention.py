"""Attention of rows that compute one token, over a paged or a contiguous cache.

Legend: T tokens, H query heads, K kv heads, G = H / K, D head_dim, P parts of a row, M the G query heads of a kv head
padded to what `tl.dot` takes, N tokens of a tile, F elements of a part, Q groups of four of them.

A program computes a row for one kv head. Few rows, or long ones, would leave the GPU idle: their tiles are dealt out to
several programs, and the last that is done puts the parts together (flash decoding). How many a row needs follows from
its own length, on the device, so a CUDA graph fits any lengths; programs without a tile end at once.
"""

from __future__ import annotations

import math
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_wait

from gpu_backend.batch import Batch
from gpu_backend.kernels.decode_order import MAX_SPLIT_ITEMS, make_order
from gpu_backend.kv_cache import LayerCache

TILE_BYTES = 16384  # of keys and as many of values; two tiles are on their way while one is computed
NUM_WARPS = 4
NUM_STAGES = 3
MERGE_ELEMENTS = 8192  # of parts that a merging program takes at a time


@triton.jit
def _merge(
    out_ptr,
    stride_out_head,
    part_ptr,
    part_lse_ptr,
    count,
    D: tl.constexpr,
    GROUP: tl.constexpr,
    PARTS: tl.constexpr,
    MERGE_WIDTH: tl.constexpr,
):
    """Put together the first `count` of PARTS parts [G, D], which lie one after the other.

    They are seen as flat vectors, so that a thread holds the same few elements of every part: one trip to memory, and
    sums without a word between threads.
    """
    QUAD: tl.constexpr = 4  # elements of a head, for which a weight is read once
    WIDTH: tl.constexpr = min(triton.next_power_of_2(GROUP * D), MERGE_WIDTH)
    part = tl.arange(0, PARTS)
    for start in range(0, GROUP * D, WIDTH):
        at_F = start + tl.arange(0, WIDTH)
        at_Q = start + tl.arange(0, WIDTH // QUAD) * QUAD
        # other programs wrote them: not through this one's L1
        part_PF = tl.load(
            part_ptr + part[:, None] * (GROUP * D) + at_F[None, :],
            mask=(part < count)[:, None] & (at_F < GROUP * D)[None, :],
            other=0.0,
            cache_modifier=".cg",
        )
        lse_PQ = tl.load(
            part_lse_ptr + part[:, None] * GROUP + (at_Q // D)[None, :],
            mask=(part < count)[:, None] & (at_Q < GROUP * D)[None, :],
            other=-1e30,
            cache_modifier=".cg",
        )
        lse_PF = tl.reshape(tl.broadcast_to(lse_PQ[:, :, None], [PARTS, WIDTH // QUAD, QUAD]), [PARTS, WIDTH])
        weight_PF = tl.exp2(lse_PF - tl.max(lse_PF, 0)[None, :])
        out_F = tl.sum(part_PF * weight_PF, 0) / tl.sum(weight_PF, 0)
        out_pointer = out_ptr + at_F // D * stride_out_head + at_F % D
        tl.store(out_pointer, out_F.to(out_ptr.dtype.element_ty), mask=at_F < GROUP * D)


@triton.jit(do_not_specialize=["num_blocks", "num_heads", "num_rows", "long_rows", "heads_together", "min_chunk"])
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
    num_blocks,
    num_heads,
    num_rows,
    long_rows,
    heads_together,
    min_chunk,
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
    SPLITS: tl.constexpr,
    MERGE_WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PAGED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    # long rows first, so that short ones end the launch; a few heads at a time: they lie far apart, and programs that
    # run together should use few pages of memory
    long_programs = num_heads * long_rows * SPLITS
    is_long = tl.program_id(0) < long_programs
    index = tl.program_id(0) - tl.where(is_long, 0, long_programs)
    lines = tl.where(is_long, long_rows * SPLITS, num_rows - long_rows)
    line = index // heads_together % lines
    head = index // heads_together // lines * heads_together + index % heads_together
    row = tl.where(is_long, line // SPLITS, long_rows + line).to(tl.int64)
    split = 0 if SPLITS == 1 else tl.where(is_long, line % SPLITS, 0)
    item = row * num_heads + head
    offs_m = tl.arange(0, M)
    offs_d = tl.arange(0, D_PADDED)
    offs_n = tl.arange(0, N)
    inside = (offs_m < GROUP)[:, None] & (offs_d < D)[None, :]
    q_pointer = q_ptr + row * stride_q_token + (head * GROUP + offs_m)[:, None] * stride_q_head + offs_d[None, :]
    out_item_ptr = out_ptr + row * stride_out_token + head * GROUP * stride_out_head
    out_pointer = out_item_ptr + offs_m[:, None] * stride_out_head + offs_d[None, :]
    table_ptr = tables_ptr + row * stride_tables_row
    head_offset = head.to(tl.int64) * stride_cache_head
    if OVERLAP:
        gdc_wait()  # the kernel before may still run: nothing above this line reads memory
    seq_len = tl.load(seq_lens_ptr + row)
    q_MD = tl.load(q_pointer, mask=inside, other=0.0)
    if PAGED:
        # masked by the width of the table: the length of the row is on its way too
        block = (split * N + offs_n) // BLOCK_SIZE
        next_block = tl.load(table_ptr + block, mask=block < num_blocks, other=0)
    else:
        base = tl.load(table_ptr).to(tl.int64) * BLOCK_SIZE
    count = 1
    if SPLITS > 1:
        count = tl.maximum(tl.minimum(tl.cdiv(seq_len, min_chunk), tl.where(is_long, SPLITS, 1)), 1)
    if split < count:
        top = tl.full([M], float("-inf"), tl.float32)
        total = tl.zeros([M], tl.float32)
        out_MD = tl.zeros([M, D_PADDED], tl.float32)
        for tile in range(split, tl.cdiv(seq_len, N), count):
            token = tile * N + offs_n
            live = token < seq_len
            if PAGED:
                slot = next_block.to(tl.int64) * BLOCK_SIZE + token % BLOCK_SIZE
                # a tile ahead, so that keys and values need not wait for it
                ahead = token + count * N
                next_block = tl.load(table_ptr + ahead // BLOCK_SIZE, mask=ahead < seq_len, other=0)
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
        total = tl.maximum(total, 1.0)  # it is at least 1 but where there was nothing to add
        out_MD /= total[:, None]
        if count == 1:
            tl.store(out_pointer, out_MD.to(out_ptr.dtype.element_ty), mask=inside)
        else:
            first_line = item * SPLITS * GROUP
            line_M = first_line + split * GROUP + offs_m
            tl.store(part_ptr + line_M[:, None] * D + offs_d[None, :], out_MD, mask=inside)
            tl.store(part_lse_ptr + line_M, top + tl.log2(total), mask=offs_m < GROUP)
            tl.debug_barrier()  # every thread's part is out before one of them says so
            if tl.atomic_add(arrived_ptr + item, 1, sem="acq_rel") == count - 1:
                tl.store(arrived_ptr + item, 0)
                _merge(
                    out_item_ptr,
                    stride_out_head,
                    part_ptr + first_line * D,
                    part_lse_ptr + first_line,
                    count,
                    D,
                    GROUP,
                    SPLITS,
                    MERGE_WIDTH,
                )


@cache
def _num_processors(device: torch.device) -> int:
    """Streaming multiprocessors; a few where the interpreter plays them."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


@cache
def _can_overlap(device: torch.device) -> bool:
    """Kernels may be launched before the one in front has ended (programmatic dependent launch)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@cache
def _counters(device: torch.device, stream: int | None) -> Tensor:
    """Zeros, which a launch leaves as zeros; those of launches that may overlap must be different ones."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("decode attention must run once before it is captured in a CUDA graph")
    return torch.zeros(MAX_SPLIT_ITEMS, dtype=torch.int32, device=device)


def _arrived(device: torch.device) -> Tensor:
    """The counters of a stream, or those of all graphs, which are made by the first launch outside."""
    graphs = _counters(device, None)
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return graphs
    return _counters(device, torch.cuda.current_stream(device).cuda_stream)


def decode_attention(
    q_THD: Tensor, cache: LayerCache, batch: Batch, out_THD: Tensor, *, block_size: int, scale: float, paged: bool
) -> None:
    """Write rows [0, `batch.num_single_rows`) of `out_THD`; those of empty rows become zero.

    Args:
        q_THD: [T, H, D] in the type of the cache; token r is that of row r.
        paged: read through the block tables; else every row lies in one piece.

    Must run once before it is captured in a CUDA graph; graphs of one device must be replayed one after the other.

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
    if head_dim > 256 or head_dim % 4:
        raise ValueError(f"head_dim={head_dim} must be a multiple of 4 up to 256")
    if not num_rows:
        return
    group, device = num_heads // num_kv_heads, q_THD.device
    padded_dim = max(16, triton.next_power_of_2(head_dim))
    order = make_order(num_kv_heads, num_rows, batch.max_seq_len, _num_processors(device))
    parts = num_kv_heads * order.long_rows * order.splits if order.splits > 1 else 0
    # where all rows are split they fill the device once or so: the next launch would take their places unevenly
    overlap = (order.splits == 1 or order.long_rows < num_rows) and _can_overlap(device)
    _decode_kernel[(num_kv_heads * (num_rows + order.long_rows * (order.splits - 1)),)](
        q_THD,
        cache.keys,
        cache.values,
        batch.block_tables,
        batch.seq_lens,
        out_THD,
        torch.empty((parts, group, head_dim), dtype=torch.float32, device=device),
        torch.empty((parts, group), dtype=torch.float32, device=device),
        _arrived(device) if parts else batch.seq_lens,
        scale * math.log2(math.e),
        batch.block_tables.shape[1],
        num_kv_heads,
        num_rows,
        order.long_rows,
        order.heads_together,
        order.min_chunk,
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
        M=max(16, triton.next_power_of_2(group)),
        N=min(128, max(16, TILE_BYTES // (padded_dim * q_THD.element_size()))),
        SPLITS=order.splits,
        MERGE_WIDTH=MERGE_ELEMENTS // order.splits,
        BLOCK_SIZE=block_size,
        PAGED=paged,
        OVERLAP=overlap,
        num_warps=NUM_WARPS,
        num_stages=NUM_STAGES,
        launch_pdl=overlap,
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
