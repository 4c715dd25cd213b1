"""Whole runs over a tiny model on a CPU: texts, plans, memory, time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from gpu_backend import memory_check, runner
from gpu_backend.executor import GpuExecutor
from gpu_backend.kernels.count_slots import count_slots_reference
from gpu_backend.prompts import GivenPrompts
from kvsim.errors import ConfigError, DeviceError, InvariantError
from kvsim.executor import ReplayExecutor
from kvsim.plan import PHASES
from kvsim.report.facts import step_times
from kvsim.report.runs import find_runs
from kvsim.workload.outcomes import Outcomes
from tests.calls import caller
from tests.gpu_backend.doubles import TINY, TinyDecoder, executor_of, gpu_executor, on_a_cpu
from tests.harness import PREEMPTING, SYSTEMS, breach, build, execute, setup, write
from tests.record.plans import decodes, plan
from tests.reference.records import Job, Setup

pytestmark = on_a_cpu

JOBS = [Job(40_000 * row, 1 + 11 * row % 23, 2 + 7 * row % 17) for row in range(14)]


@pytest.fixture(autouse=True)
def tiny_decoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything but the real decoders and the counting kernel: they have tests of their own and are slow here."""
    monkeypatch.setattr(runner, "load_decoder", TinyDecoder)
    monkeypatch.setattr(runner, "_last", None)
    monkeypatch.setattr(memory_check, "count_slots", count_slots_reference)
    yield
    runner._last = None


def texts(limits: Setup, **changes: Any) -> tuple[list[list[int]], dict[str, Any]]:
    """What every request got, and the summary of the run."""
    run = build(limits, JOBS, executor=executor_of(limits, keep_tokens=True, **changes))
    summary = execute(run).summary
    assert isinstance(run.executor, GpuExecutor)
    return [run.executor.tokens(row) for row in range(len(JOBS))], summary


def roomy(system: str = "vllm_v1") -> Setup:
    """Everybody fits."""
    return setup(system, num_blocks=1024, block_size=4, max_model_len=64)


@cache
def alone() -> list[list[int]]:
    """Texts of one request after another."""
    return texts(replace(roomy(), max_num_seqs=1))[0]


@pytest.fixture
def expected() -> list[list[int]]:
    return alone()


def test_texts_are_as_long_as_forced_and_no_loop(expected: list[list[int]]) -> None:
    assert [len(text) for text in expected] == [job.output for job in JOBS]
    assert len({token for text in expected for token in text}) > 25


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_system_changes_a_text(system: str, expected: list[list[int]]) -> None:
    assert texts(roomy(system))[0] == expected


@pytest.mark.parametrize("system", PREEMPTING)
@pytest.mark.parametrize(("block_size", "num_blocks"), [(1, 56), (4, 14), (16, 5)])
def test_no_preemption_changes_a_text(system: str, block_size: int, num_blocks: int, expected: list[list[int]]) -> None:
    limits = setup(system, num_blocks=num_blocks, block_size=block_size, max_model_len=48)
    found, summary = texts(limits, check_memory=True)
    assert summary["num_preemptions"] >= 2
    assert found == expected


@pytest.mark.parametrize(("budget", "block_size"), [(1, 4), (3, 256), (16, 1), (17, 64)])
def test_no_chunk_changes_a_text(budget: int, block_size: int, expected: list[list[int]]) -> None:
    pool = {"num_blocks": 2048 // block_size, "block_size": block_size, "max_model_len": 256}
    limits = setup("vllm_v1", **pool, max_num_batched_tokens=budget)
    assert texts(limits)[0] == expected


@pytest.mark.parametrize("system", SYSTEMS)
def test_memory_holds_what_the_plans_say(system: str) -> None:
    limits = setup(system, num_blocks=48, block_size=4, max_model_len=48)
    _, summary = texts(limits, check_memory=True)
    assert summary["completed"] == len(JOBS)


@pytest.mark.parametrize("shared", [[2, 3], [2, 1], [1, 2]])
def test_two_sequences_in_one_slot_are_found(shared: list[int]) -> None:
    executor = gpu_executor(lengths(9, 9), num_slots=64, block_size=4, check_memory=True)
    with breach("INV-tokens"):
        executor.execute(plan([(0, 0, 6, 1), (1, 0, 6, 1)], {0: [1, 2], 1: shared}), 0, 1, 1)


def test_a_token_in_the_blocks_of_another_is_found() -> None:
    """The pool as a whole holds as many as it should."""
    executor = gpu_executor(lengths(9, 9), num_slots=64, block_size=4, check_memory=True)
    tables = {0: [1, 2], 1: [4, 5]}
    executor.execute(plan([(0, 0, 6, 1), (1, 0, 6, 1)], tables), 0, 1, 1)
    cache = executor._runner.cache
    cache.keys[:, :, 2 * 4 + 3] = cache.keys[:, :, 5 * 4 + 1]
    cache.keys[:, :, 5 * 4 + 1] = torch.nan
    with pytest.raises(InvariantError, match="8 slots in the blocks of sequence 0 are written, the plan says 7"):
        executor.execute(decodes(6, 6, tables=tables, step=1), 0, 1, 1)


def test_a_token_outside_of_all_blocks_is_found() -> None:
    executor = gpu_executor(lengths(9), num_slots=64, block_size=4, check_memory=True)
    executor.execute(plan([(0, 0, 6, 1)], {0: [1, 2]}), 0, 1, 1)
    executor._runner.cache.keys[:, :, 60] = 1.0
    with pytest.raises(InvariantError, match="8 slots of the pool are written, all sequences together have 7 tokens"):
        executor.execute(decodes(6, tables={0: [1, 2]}, step=1), 0, 1, 1)


def test_memory_checks_are_off_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = gpu_executor(lengths(9), num_slots=64, block_size=4, check_memory=True)

    def slow(*_: Any) -> None:
        time.sleep(0.1)

    monkeypatch.setattr(memory_check.MemoryCheck, "poison_freed", slow)
    monkeypatch.setattr(memory_check.MemoryCheck, "count", slow)
    executor.execute(decodes(4, tables={0: [0, 1, 2]}), 0, 1, 1)
    for held in (5, 6):
        result = executor.execute(decodes(held, tables={0: [0, 1, 2]}), 0, 1, 1)
        assert result.durations.tolist() == [sum(result.breakdown)]
        assert 0 <= result.breakdown[0] < 100_000_000 and result.durations[0] < 200_000_000


def test_a_row_that_draws_twice_is_refused() -> None:
    executor = gpu_executor(lengths(9), num_slots=64, block_size=4)
    with pytest.raises(ValueError, match="step 0: a row draws 2 tokens, at most 1 is supported"):
        executor.execute(plan([(0, 0, 6, 2)], {0: [1, 2]}), 0, 1, 1)


def test_what_times_depend_on_is_known_before_anything_is_made() -> None:
    executor = gpu_executor(lengths(9), num_slots=64, block_size=4)
    environment = executor.environment
    assert runner._last is None
    assert environment["device"] == "cpu" and environment["driver"] is None
    assert environment["torch"] == torch.__version__
    assert list(environment) == ["device", "driver", "cuda", "torch", "triton", "attention", "dtype"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_replayed_durations_give_the_same_plans(system: str, tmp_path: Path) -> None:
    """INV-parity."""
    limits = setup(system, num_blocks=24, block_size=4, max_model_len=48)
    arrivals = [replace(job, arrival=job.arrival * 60) for job in JOBS]  # a CPU takes milliseconds a step
    measured = write(build(limits, arrivals, executor=executor_of(limits)), tmp_path / "gpu")

    def replay(_: Any, outcomes: Outcomes) -> ReplayExecutor:
        return ReplayExecutor.from_run(tmp_path / "gpu", outcomes)

    replayed = write(build(limits, arrivals, executor=replay), tmp_path / "replay")
    assert measured["plans.jsonl.gz"] == replayed["plans.jsonl.gz"]
    for name in ("requests.parquet", "memory.parquet", "summary.json"):
        assert measured[name] == replayed[name]


def test_phases_add_up_to_the_step(tmp_path: Path) -> None:
    limits = roomy()
    write(build(limits, JOBS, executor=executor_of(limits)), tmp_path)
    steps = pq.read_table(tmp_path / "steps.parquet")
    phases = np.array([steps[f"{phase}_s"].to_numpy() for phase in PHASES])
    assert np.allclose(phases.sum(axis=0), steps["duration_s"].to_numpy(), atol=1e-9, rtol=0)
    assert phases[0, 0] == 0
    assert (phases[1:] > 0).all()


def test_time_between_steps_counts() -> None:
    executor = gpu_executor(lengths(9), num_slots=64, block_size=4)
    executor.execute(decodes(4, tables={0: [0, 1, 2]}), 0, 1, 1)
    busy = torch.randn(400, 400)
    for _ in range(20):
        busy = (busy @ busy).sin()
    result = executor.execute(decodes(5, tables={0: [0, 1, 2]}), 0, 1, 1)
    assert result.durations.tolist() == [sum(result.breakdown)]
    assert result.breakdown[0] > 1_000_000


def test_real_texts_come_from_prompts() -> None:
    prompts = GivenPrompts({0: [5, 6, 7], 1: [5, 6, 7], 2: [5, 6, 8]})
    executor = gpu_executor(lengths(4, 4, 4), num_slots=64, block_size=4, prompts=prompts, keep_tokens=True)
    tables = {0: [0, 1], 1: [2, 3], 2: [4, 5]}
    executor.execute(plan([(row, 0, 3, 1) for row in range(3)], tables), 0, 1, 1)
    for held in range(3, 6):
        executor.execute(decodes(held, held, held, tables=tables), 0, 1, 1)
    texts = [executor.tokens(row) for row in range(3)]
    assert texts[0] == texts[1] != texts[2]


def test_a_temperature_draws_from_the_seed() -> None:
    first = texts(roomy(), temperature=1.0)[0]
    assert first == texts(roomy(), temperature=1.0)[0]
    assert first != texts(roomy(), temperature=1.0, seed=1)[0]


def test_padding_and_idle_members_are_computed_but_draw_for_nobody() -> None:
    executor = gpu_executor(lengths(1, 3), num_slots=64, block_size=4, keep_tokens=True)
    tables = {0: [0, 1], 1: [2, 3]}
    result = executor.execute(plan([(0, 0, 2, 1), (1, 0, 5, 1)], tables, padding_tokens=3), 0, 1, 1)
    assert result.stopped.tolist() == [0]
    before = executor.tokens(0)
    executor.execute(decodes(5, first_id=1, tables=tables, idle_rows=1), 0, 1, 1)
    assert executor.tokens(0) == before
    assert len(executor.tokens(1)) == 2


def test_executors_of_a_kind_share_the_device() -> None:
    first = gpu_executor(lengths(), num_slots=64, block_size=4)
    again = gpu_executor(lengths(), num_slots=64, block_size=4)
    assert again._runner is first._runner
    decoder = first._runner.decoder
    other = gpu_executor(lengths(), num_slots=128, block_size=4)
    assert other._runner is not first._runner
    assert other._runner.decoder is decoder
    assert not hasattr(first._runner, "cache")
    assert gpu_executor(lengths(), num_slots=128, block_size=4, seed=1)._runner.decoder is not decoder


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"device": "cuda:99"}, r"executor.device=cuda:99: PyTorch .* sees \d+ CUDA devices; give executor=sim"),
        ({"device": "meta"}, "executor.device='meta' is not supported; give cuda, cuda:1 or cpu"),
        ({"device": "gpu"}, "executor.device='gpu' is no device; give cuda, cuda:1 or cpu"),
        ({"dtype": "int8"}, "executor.dtype='int8' must be one of bfloat16, float16, float32"),
        ({"tensor_parallel": 2}, "hardware.tensor_parallel=2: executor=gpu runs on one GPU"),
        ({"num_slots": 1 << 50}, "tiny needs 0.0 GiB for its weights and .* GiB are free on cpu; lower kv.num_blocks"),
        ({"temperature": -1.0}, "executor.temperature=-1"),
        ({"temperature": float("nan")}, "executor.temperature=nan"),
        ({"temperature": True}, "executor.temperature=True"),
        ({"temperature": "1"}, "executor.temperature='1'"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        gpu_executor(lengths(), **{"num_slots": 64, "block_size": 4, **changes})


def test_pieces_are_not_read_as_one() -> None:
    from gpu_backend.attention.triton_contiguous import TritonContiguous

    with pytest.raises(ConfigError, match="attention: TritonContiguous reads sequences that lie in one piece"):
        gpu_executor(lengths(), num_slots=64, block_size=4, attention=TritonContiguous())


def test_a_device_that_runs_out_of_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = gpu_executor(lengths(4), num_slots=64, block_size=4)

    def fail(step: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    monkeypatch.setattr(executor._runner, "run", fail)
    with pytest.raises(DeviceError, match="cpu ran out of memory in step 0 of 1 tokens; lower kv.num_blocks"):
        executor.execute(decodes(4, tables={0: [0, 1]}), 0, 1, 1)


TINY_OVERRIDES = [
    *(f"model.{name}={getattr(TINY, name)}" for name in ("num_layers", "hidden_size", "num_heads", "num_kv_heads")),
    *(f"model.{name}={getattr(TINY, name)}" for name in ("head_dim", "ffn_size", "vocab_size")),
    "model.max_model_len=64",
]


def test_the_command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = caller(monkeypatch, capfd, "run")
    arguments = ["executor=gpu", "executor.device=cpu", "attention=sdpa", "model=smollm2-135m", *TINY_OVERRIDES]
    arguments += ["kv.num_blocks=64", "rate=1000", "num_requests=5", "workload=synthetic"]
    arguments += ["workload.lengths.input_mean=9", "workload.lengths.output_mean=5"]
    reply = command(*arguments, f"hydra.run.dir={tmp_path}/run")
    assert reply.code == 0, reply.err
    assert pq.read_table(tmp_path / "run" / "steps.parquet")["forward_s"].null_count == 0
    (summary,) = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["cost"], summary["executor"]) == (None, "gpu")
    environment = json.loads((tmp_path / "run/env.json").read_text())["executor"]
    assert (environment["device"], environment["attention"]) == ("cpu", "Sdpa()")
    (run,), _ = find_runs([tmp_path / "run"])
    assert step_times(run) == "executor gpu"


def test_weights_that_are_not_there_leave_no_folder(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = caller(monkeypatch, capfd, "run")
    arguments = ["executor=gpu", "executor.device=cpu", "executor.weights=/no/where", "model=smollm2-135m"]
    reply = command(*arguments, "kv.num_blocks=64", "rate=1", "num_requests=2", f"hydra.run.dir={tmp_path}/run")
    assert reply.code == 2
    assert reply.err.splitlines()[-1].startswith("kvsim: executor.weights='/no/where': must be ")
    assert not (tmp_path / "run").exists()


def test_the_command_tells_of_a_device_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(*_: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(runner.ModelRunner, "run", fail)
    command = caller(monkeypatch, capfd, "run")
    arguments = ["executor=gpu", "executor.device=cpu", "attention=sdpa", "model=smollm2-135m", *TINY_OVERRIDES]
    arguments += ["kv.num_blocks=64", "rate=1", "num_requests=2", "workload=synthetic", "workload.lengths.input_mean=9"]
    reply = command(*arguments, "workload.lengths.output_mean=5", f"hydra.run.dir={tmp_path}/run")
    assert reply.code == 1
    assert reply.err.splitlines()[-1].startswith("kvsim: cpu ran out of memory in step 0 of ")
    assert not (tmp_path / "run" / "summary.json").exists()


def lengths(*outputs: int) -> Outcomes:
    """Of requests 0, 1 and so on."""
    outcomes = Outcomes()
    for request_id, length in enumerate(outputs):
        outcomes.add(request_id, length)
    return outcomes


@on_a_cpu
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention", None, "executor.attention=None: is no attention backend"),
        ("attention", "triton_paged", "executor.attention='triton_paged': is no attention backend"),
        ("cuda_graphs", "text", "executor.cuda_graphs='text': must be true or false"),
        ("check_memory", 1, "executor.check_memory=1: must be true or false"),
        ("device", "cpu:7", "executor.device='cpu:7' is not supported"),
    ],
)
def test_refused_keys(key: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        gpu_executor(Outcomes(), num_slots=64, block_size=4, **{key: value})
