"""Prefill attention against float32 PyTorch, over paged and contiguous caches whose unwritten slots are NaN."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.kernels.prefill_attention import prefill_attention, prefill_attention_reference, query_tile
from gpu_backend.kv_cache import LayerCache
from tests.gpu_backend.kernels.errors import error

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 3e-3}
MIXED = [(1, 9), (1, 0), (37, 0), (2, 100), (130, 65), (64, 0)]  # tokens of each row and those cached before


def build(
    rows: list[tuple[int, int]], group: int, head_dim: int, block_size: int, dtype: torch.dtype, device: torch.device,
    paged: bool = True,
) -> tuple[Tensor, LayerCache, Batch]:  # fmt: skip
    """Queries as a view of a wider buffer, a cache of two KV heads with the rows' blocks at random, and the batch."""
    torch.manual_seed(0)
    num_tokens = [tokens for tokens, _ in rows]
    seq_lens = [tokens + context for tokens, context in rows]
    num_blocks = [-(-length // block_size) for length in seq_lens]
    total = sum(num_blocks) + 3
    blocks = torch.randperm(total) if paged else torch.arange(3, total)
    tables = torch.full((len(rows) + 1, max(num_blocks) + 2), -(2**30), dtype=torch.int32)
    cache = torch.full((2, 2, total * block_size, head_dim), float("nan"))
    for row, table in enumerate(blocks[: sum(num_blocks)].split(num_blocks)):
        tables[row, : len(table)] = table
        slots = (table[:, None] * block_size + torch.arange(block_size)).flatten()[: seq_lens[row]]
        cache[:, :, slots] = torch.randn(2, 2, len(slots), head_dim)
    if not paged:
        tables[:, 1:] = -(2**30)
    tile = query_tile(group)
    tiles = [(row, first) for row, n in enumerate(num_tokens) if n > 1 for first in range(0, n, tile)]
    buffer = torch.randn(sum(num_tokens) + 2, 2 * group + 4, head_dim)
    ends = torch.tensor([0, *num_tokens, 0]).cumsum(0)
    empty = torch.empty(0)
    batch = Batch(
        input_ids=empty,
        positions=empty,
        slot_mapping=empty,
        query_start_loc=ends.to(device, torch.int32),
        seq_lens=torch.tensor([*seq_lens, 0], dtype=torch.int32, device=device),
        block_tables=tables.to(device),
        query_tiles=torch.tensor([*tiles, (-1, 0), (-1, 0)], dtype=torch.int32, device=device),
        sample_tokens=empty,
        query_tile=tile,
        num_single_rows=num_tokens.count(1),
        max_seq_len=max(seq_lens),
    )
    q_THD = buffer.to(device, dtype)[:, : 2 * group]
    return q_THD, LayerCache(*cache.to(device, dtype)), batch


def check(q_THD: Tensor, cache: LayerCache, batch: Batch, block_size: int, paged: bool = True) -> None:
    out_THD = torch.full_like(q_THD, float("nan"))
    scale = q_THD.shape[-1] ** -0.5
    prefill_attention(q_THD, cache, batch, out_THD, block_size=block_size, scale=scale, paged=paged)
    expected_THD = torch.full(q_THD.shape, float("nan"), device=q_THD.device)
    prefill_attention_reference(q_THD, cache, batch, expected_THD, block_size=block_size, scale=scale, paged=paged)
    written = ~expected_THD.isnan().all(-1).all(-1)
    assert written.sum() == sum(n for n in batch.query_start_loc.diff().tolist() if n > 1)
    assert out_THD[~written].isnan().all()
    assert error(out_THD[written], expected_THD[written]) < TOLERANCE[q_THD.dtype]


@pytest.mark.parametrize("group", [1, 3, 4])
@pytest.mark.parametrize("block_size", [1, 16, 24, 64, 256])
@pytest.mark.parametrize("paged", [True, False])
def test_mixed_rows(group: int, block_size: int, paged: bool, device: torch.device) -> None:
    check(*build(MIXED, group, 64, block_size, torch.float16, device, paged), block_size, paged)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_head_dim(head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
    if dtype == torch.bfloat16 and device.type == "cpu":
        pytest.skip("the interpreter multiplies the bits of bfloat16 as integers")
    check(*build([(1, 3), (40, 21)], 2, head_dim, 16, dtype, device), 16)


def test_group_larger_than_a_tile(device: torch.device) -> None:
    check(*build([(3, 30)], 130, 64, 16, torch.float16, device), 16)


def test_token_major_cache(device: torch.device) -> None:
    q_THD, cache, batch = build(MIXED, 2, 64, 16, torch.float16, device)
    check(q_THD, LayerCache(*(kv.transpose(0, 1).contiguous().transpose(0, 1) for kv in cache)), batch, 16)


def test_reference_is_torchs(device: torch.device) -> None:
    q_THD, cache, batch = build([(50, 0)], 1, 64, 16, torch.float32, device, paged=False)
    out_THD = torch.empty_like(q_THD)
    prefill_attention_reference(q_THD, cache, batch, out_THD, block_size=16, scale=0.2, paged=False)
    first = int(batch.block_tables[0, 0]) * 16
    expected = torch.nn.functional.scaled_dot_product_attention(
        q_THD[:50].transpose(0, 1), *(kv[:, first : first + 50] for kv in cache), is_causal=True, scale=0.2
    )
    assert error(out_THD[:50], expected.transpose(0, 1)) < 1e-6


def test_nothing_to_do(device: torch.device) -> None:
    q_THD, cache, batch = build([(1, 4)], 2, 64, 16, torch.float16, device)
    for tiles in (batch.query_tiles, batch.query_tiles[:0]):
        out_THD = torch.full_like(q_THD, float("nan"))
        prefill_attention(
            q_THD, cache, batch._replace(query_tiles=tiles), out_THD, block_size=16, scale=1.0, paged=True
        )
        assert out_THD.isnan().all()


@pytest.mark.parametrize("fault", ["heads", "head_dim", "output", "stride", "dtype", "tile"])
def test_refused(fault: str, device: torch.device) -> None:
    q_THD, cache, batch = build([(2, 4)], 2, 64, 16, torch.float16, device)
    out_THD = torch.empty_like(q_THD)
    if fault == "heads":
        q_THD, out_THD = q_THD[:, :3], out_THD[:, :3]
    elif fault == "head_dim":
        q_THD, out_THD = q_THD[..., :32], out_THD[..., :32]
    elif fault == "output":
        out_THD = out_THD[:1]
    elif fault == "stride":
        q_THD = q_THD.transpose(0, 2).contiguous().transpose(0, 2)
    elif fault == "dtype":
        q_THD = q_THD.float()
    else:
        batch = batch._replace(query_tile=batch.query_tile + 1)
    with pytest.raises(ValueError):
        prefill_attention(q_THD, cache, batch, out_THD, block_size=16, scale=1.0, paged=True)
