"""Prefill attention on a GPU: offsets past 2^31, CUDA graphs, speed."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.batch import Batch
from gpu_backend.kernels.prefill_attention import prefill_attention, prefill_attention_reference, query_tile
from gpu_backend.kv_cache import LayerCache
from tests.gpu_backend.kernels.errors import error
from tests.gpu_backend.kernels.test_prefill_attention import build, check

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")


@pytest.mark.parametrize("paged", [True, False])
def test_offsets_past_2_to_31(paged: bool) -> None:
    q_THD, cache, batch = build([(70, 90)], 4, 128, 16, torch.bfloat16, CUDA, paged)
    num_slots = 2**31 // 128 + 4096
    large = torch.full((2, num_slots, 128), float("nan"), dtype=torch.bfloat16, device=CUDA)
    used = cache.keys.shape[1]
    large[:, -used:] = cache.keys
    # keys serve as values too: one pool of 8 GiB is enough
    batch = batch._replace(block_tables=batch.block_tables + (num_slots - used) // 16)
    check(q_THD, LayerCache(large, large), batch, 16, paged)


def test_graph_reads_the_batch_of_its_replay() -> None:
    q_THD, cache, batch = build([(1, 9), (300, 65), (40, 0)], 4, 128, 16, torch.bfloat16, CUDA)
    out_THD = torch.full_like(q_THD, float("nan"))
    arguments = {"block_size": 16, "scale": 0.1, "paged": True}
    prefill_attention(q_THD, cache, batch, out_THD, **arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        prefill_attention(q_THD, cache, batch, out_THD, **arguments)
    batch.query_tiles[batch.query_tiles[:, 0] == 1] = -1
    out_THD.fill_(float("nan"))
    graph.replay()
    expected_THD = torch.full(q_THD.shape, float("nan"), device=CUDA)
    prefill_attention_reference(q_THD, cache, batch, expected_THD, **arguments)
    written = ~expected_THD.isnan().all(-1).all(-1)
    assert written.sum() == 40
    assert out_THD[~written].isnan().all()
    assert error(out_THD[written], expected_THD[written]) < 3e-3


def test_speed() -> None:
    """Well below what an H200 does; a kernel whose matrix products are serialised does half of it."""
    num_tokens, num_heads, num_kv_heads, head_dim = 8192, 32, 8, 128
    q_THD = torch.randn(num_tokens, num_heads, head_dim, device=CUDA, dtype=torch.bfloat16)
    cache = LayerCache(*torch.randn(2, num_kv_heads, num_tokens, head_dim, device=CUDA, dtype=torch.bfloat16))
    tile = query_tile(num_heads // num_kv_heads)
    empty = torch.empty(0)
    batch = Batch(
        input_ids=empty,
        positions=empty,
        slot_mapping=empty,
        query_start_loc=torch.tensor([0, num_tokens], dtype=torch.int32, device=CUDA),
        seq_lens=torch.tensor([num_tokens], dtype=torch.int32, device=CUDA),
        block_tables=torch.randperm(num_tokens // 16, device=CUDA, dtype=torch.int32)[None],
        query_tiles=torch.tensor([(0, first) for first in range(0, num_tokens, tile)], dtype=torch.int32, device=CUDA),
        sample_tokens=empty,
        query_tile=tile,
        num_single_rows=0,
        max_seq_len=num_tokens,
    )
    out_THD = torch.empty_like(q_THD)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for _ in range(2):
        events[0].record()
        for _ in range(5):
            prefill_attention(q_THD, cache, batch, out_THD, block_size=16, scale=head_dim**-0.5, paged=True)
        events[1].record()
        events[1].synchronize()
    seconds = events[0].elapsed_time(events[1]) / 5e3
    assert 2 * num_tokens**2 * num_heads * head_dim / seconds > 250e12
