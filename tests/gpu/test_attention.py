"""What only a GPU shows: bfloat16, offsets beyond 2^31 elements, CUDA graphs, FlashInfer, and speed."""

import functools
import importlib.util

import pytest
import torch

from gpu_backend.attention.flashinfer import FlashInfer
from gpu_backend.attention.reference import Reference
from gpu_backend.attention.triton_contiguous import TritonContiguous
from gpu_backend.attention.triton_paged import TritonPaged
from gpu_backend.bench.contenders import OURS
from gpu_backend.bench.inputs import DECODE, make_inputs
from gpu_backend.bench.timing import copy_bandwidth, median_us
from gpu_backend.kernels import decode_attention
from gpu_backend.kernels.prefill_attention import query_tile
from gpu_backend.kernels.write_kv import write_kv
from gpu_backend.kv_cache import LayerCache
from tests.gpu_backend.attention.problems import make_problem
from tests.gpu_backend.kernels.errors import error

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")
MIX = [(1, 700), (1, 33), (1, 4000), (0, 0), (300, 300), (40, 1000), (2, 2)]
SHAPES = [
    (40, 40, 128, 16, torch.bfloat16),
    (32, 8, 128, 256, torch.bfloat16),
    (32, 8, 128, 1, torch.float16),
    (9, 3, 64, 16, torch.float32),
    (8, 8, 80, 16, torch.float16),
]


def expected(problem):
    return Reference().forward(problem.q_THD.float(), *problem[1:])


@pytest.mark.parametrize("backend", [TritonPaged(), TritonContiguous()], ids=repr)
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim", "block_size", "dtype"), SHAPES)
def test_mixed_batches(backend, num_heads, num_kv_heads, head_dim, block_size, dtype):
    problem = make_problem(
        MIX,
        device=CUDA,
        dtype=dtype,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        query_tile=query_tile(num_heads // num_kv_heads),
        contiguous=backend.contiguous,
        padding_tokens=5,
    )
    out = backend.forward(*problem)
    assert out.isfinite().all()
    computed = slice(0, int(problem.batch.query_start_loc[-1]))
    limit = 1e-4 if dtype == torch.float32 else 3e-3
    assert error(out[computed], expected(problem)[computed]) < limit


def test_offsets_beyond_32_bits():
    heads, slots, head_dim, block_size = 2, 17_000_000, 128, 16  # 2.2e9 elements a head
    pool = torch.empty((2, heads, slots, head_dim), dtype=torch.bfloat16, device=CUDA)
    cache = LayerCache(*pool)
    problem = make_problem([(1, 40)], device=CUDA, dtype=torch.bfloat16, num_heads=8, head_dim=head_dim)
    last = slots // block_size - 1
    tables = torch.tensor([[last, 3, last - 1]], dtype=torch.int32, device=CUDA)
    slot_mapping = (tables[0].long()[:, None] * block_size + torch.arange(block_size, device=CUDA)).flatten()[:40]
    k_TKD, v_TKD = torch.randn((2, 40, heads, head_dim), device=CUDA).bfloat16()
    write_kv(k_TKD, v_TKD, cache, slot_mapping)
    assert torch.equal(cache.keys[:, last * block_size], k_TKD[0])
    problem = problem._replace(cache=cache, batch=problem.batch._replace(block_tables=tables))
    assert error(TritonPaged().forward(*problem), expected(problem)) < 3e-3


def test_a_graph_serves_other_lengths():
    problem = make_problem([(1, 2000)] * 8, device=CUDA, dtype=torch.bfloat16, head_dim=128)
    TritonPaged().forward(*problem)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = TritonPaged().forward(*problem)
    for seq_lens in ([2000] * 8, [1, 0, 2000, 17, 0, 64, 65, 900], [0] * 7 + [5]):
        problem.batch.seq_lens.copy_(torch.tensor(seq_lens))
        out.fill_(float("nan"))
        graph.replay()
        assert out.isfinite().all() and error(out, expected(problem)) < 3e-3


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("heads", [8, 40])
def test_long_rows_among_short_ones(heads, ascending):
    lengths = sorted([2000, 1500, 1024, 513, *range(20, 600, 29)], reverse=not ascending)
    problem = make_problem(
        [(1, length) for length in lengths],
        device=CUDA,
        dtype=torch.bfloat16,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=128,
    )
    for _ in range(3):
        assert error(TritonPaged().forward(*problem), expected(problem)) < 3e-3


def test_a_first_launch_cannot_be_captured(monkeypatch):
    problem = make_problem([(1, 2000)], device=CUDA, dtype=torch.bfloat16)
    first = TritonPaged().forward(*problem)
    monkeypatch.setattr(decode_attention, "_counters", functools.cache(decode_attention._counters.__wrapped__))
    with pytest.raises(RuntimeError, match="once before it is captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        TritonPaged().forward(*problem)
    assert torch.equal(TritonPaged().forward(*problem), first)


def test_results_do_not_depend_on_the_run():
    problem = make_problem([(1, length) for length in range(100, 3000, 57)], device=CUDA, dtype=torch.bfloat16)
    first = TritonPaged().forward(*problem)
    assert all(torch.equal(first, TritonPaged().forward(*problem)) for _ in range(20))


def test_launches_may_overlap():
    problems = [make_problem([(1, 3000)] * 4, device=CUDA, dtype=torch.bfloat16, seed=seed) for seed in (1, 2)]
    alone = [TritonPaged().forward(*problem) for problem in problems]
    streams = [torch.cuda.Stream() for _ in problems]
    torch.cuda.synchronize()
    for _ in range(50):
        together = []
        for problem, stream in zip(problems, streams, strict=True):
            with torch.cuda.stream(stream):
                together.append(TritonPaged().forward(*problem))
        torch.cuda.synchronize()
        assert all(torch.equal(*pair) for pair in zip(alone, together, strict=True))


@pytest.mark.skipif(importlib.util.find_spec("flashinfer") is None, reason="flashinfer is not installed")
@pytest.mark.parametrize("tensor_cores", [False, True])
@pytest.mark.parametrize("rows", [MIX, [(1, 700), (1, 33), (0, 0)]])
def test_flashinfer_takes_the_head_major_pool(tensor_cores, rows):
    problem = make_problem(rows, device=CUDA, dtype=torch.bfloat16, num_heads=8, head_dim=128)
    out = FlashInfer(tensor_cores).forward(*problem)
    computed = slice(0, sum(new for new, _ in rows if new > 0))
    assert error(out[computed], expected(problem)[computed]) < 4e-3


@pytest.mark.slow
@pytest.mark.parametrize("shape", DECODE, ids=lambda shape: f"{shape.shape}-{shape.batch}x{shape.max_context}")
def test_decode_reads_memory_at_a_fair_rate(shape):
    """A third of the copy bandwidth is far below what is measured, and far above what a bad schedule gives."""
    inputs = make_inputs(shape, device=CUDA, dtype=torch.bfloat16)
    time_us = median_us(OURS[0].launches(inputs), device=CUDA, repeats=5)
    assert inputs.kv_bytes / time_us / 1e6 > copy_bandwidth(CUDA) / 3
