"""Runs on a GPU: graphs, every system, memory counted on the device, host time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gpu_backend.attention.sdpa import Sdpa
from gpu_backend.attention.triton_contiguous import TritonContiguous
from gpu_backend.attention.triton_paged import TritonPaged
from gpu_backend.executor import GpuExecutor
from gpu_backend.kernels.prefill_attention import query_tile
from gpu_backend.kv_cache import KVCache
from gpu_backend.models.load import load_decoder
from gpu_backend.prompts import GivenPrompts, RandomPrompts
from kvsim.plan import StepPlan, ones
from kvsim.specs import ModelSpec
from tests.gpu.conftest import Real
from tests.gpu_backend.doubles import executor_of, gpu_executor
from tests.gpu_backend.models import smollm2
from tests.gpu_backend.models.generation import Row, make_batch
from tests.gpu_backend.test_executor import lengths
from tests.harness import RESERVING, SYSTEMS, build, execute, setup
from tests.reference.records import Job

pytestmark = pytest.mark.gpu

SMALL = ModelSpec(
    name="small",
    architecture="llama",
    num_layers=3,
    hidden_size=256,
    num_heads=8,
    num_kv_heads=2,
    head_dim=32,
    ffn_size=512,
    vocab_size=1000,
    max_model_len=2048,
    tied_embeddings=False,
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
)
EAGER = ("fastertransformer", "vllm_v1")
JOBS = [Job(200_000 * row, 1 + 37 * row % 90, 2 + 7 * row % 40) for row in range(40)]


def texts(system: str, **changes: Any) -> list[list[int]]:
    limits = setup(system, num_blocks=96, block_size=16, max_model_len=256, max_num_seqs=16, max_num_batched_tokens=256)
    executor = executor_of(limits, device="cuda", model=SMALL, keep_tokens=True, **changes)
    run = build(limits, JOBS, executor=executor)
    assert execute(run).summary["completed"] == len(JOBS)
    assert isinstance(run.executor, GpuExecutor)
    return [run.executor.tokens(row) for row in range(len(JOBS))]


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return texts("vllm_v1", attention=Sdpa())


@pytest.mark.parametrize(
    ("system", "cuda_graphs"),
    [*((system, True) for system in SYSTEMS), *((system, False) for system in EAGER)],
    ids=lambda value: value if isinstance(value, str) else ("eager", "graphs")[value],
)
def test_every_system_gives_the_reference_texts(system: str, cuda_graphs: bool, expected: list[list[int]]) -> None:
    contiguous = system in RESERVING
    attention = TritonContiguous() if contiguous else TritonPaged()
    found = texts(system, attention=attention, contiguous=contiguous, cuda_graphs=cuda_graphs, check_memory=True)
    for row, pair in enumerate(zip(found, expected, strict=True)):
        if pair[0] != pair[1]:  # in float32 a tie within rounding may turn a text
            assert_tie(row, *pair)


def assert_tie(row: int, found: list[int], expected: list[int], device: str = "cuda") -> None:
    """Where the texts of a job part, the two tokens are the best ones and equally good."""
    assert len(found) == len(expected)
    at = next(index for index, tokens in enumerate(zip(found, expected, strict=True)) if tokens[0] != tokens[1])
    prompt = RandomPrompts(0, SMALL.vocab_size).tokens(row, 0, JOBS[row].prompt)
    seen = [*prompt.tolist(), *expected[:at]]
    decoder = load_decoder(SMALL, weights=None, dtype=torch.float32, device=torch.device(device))
    cache = KVCache(SMALL, 256, 16, dtype=torch.float32, device=decoder.device)
    tile = query_tile(SMALL.num_heads // SMALL.num_kv_heads)
    batch = make_batch([Row(seen, 0, range(-(-len(seen) // 16)))], 16, decoder.device, tile=tile)
    logits_V = decoder.logits(decoder.hidden(batch, cache, Sdpa())[len(seen) - 1])
    best = logits_V.topk(2)
    assert set(best.indices.tolist()) == {found[at], expected[at]}
    assert float(best.values[0] - best.values[1]) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("cuda_graphs", [True, False], ids=["graphs", "eager"])
def test_preemption_does_not_change_real_texts(smol: Real, cuda_graphs: bool) -> None:
    length = len(smol.texts[0])
    jobs = [Job(3_000_000 * row, len(prompt), length) for row, prompt in enumerate(smollm2.PROMPTS)]
    limits = setup(
        "vllm_v1", num_blocks=24, block_size=16, max_model_len=64, max_num_seqs=16, max_num_batched_tokens=32
    )
    executor = executor_of(
        limits,
        device="cuda",
        model=smollm2.MODEL,
        weights=str(smol.path),
        attention=TritonPaged(),
        cuda_graphs=cuda_graphs,
        prompts=GivenPrompts(dict(enumerate(smollm2.PROMPTS))),
        keep_tokens=True,
        check_memory=True,
    )
    run = build(limits, jobs, executor=executor)
    preemptions = execute(run).summary["num_preemptions"]
    assert preemptions is not None and preemptions >= 5
    assert isinstance(run.executor, GpuExecutor)
    assert [run.executor.tokens(row) for row in range(len(jobs))] == smol.texts


def test_the_host_prepares_256_rows_in_a_tenth_of_a_millisecond() -> None:
    executor = gpu_executor(
        lengths(*[10_000] * 256),
        num_slots=256 * 512,
        block_size=16,
        device="cuda",
        model=SMALL,
        attention=TritonPaged(),
        max_model_len=2048,
        max_num_seqs=256,
        max_num_batched_tokens=16,
    )
    ids, one = np.arange(256), ones(256)
    tables = {row: list(range(32 * row, 32 * row + 32)) for row in range(256)}
    prepared = []
    for step in range(60):
        positions = 200 + ids % 16 + step
        held = positions + 1
        plan = StepPlan(step, ids, positions, one, positions, held, one, tables, 256, int(held.sum()), 256)
        prepared.append(executor.execute(plan, 0, 1, 1).breakdown[1])
    assert np.median(prepared) < 100_000
