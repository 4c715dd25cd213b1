"""The engine against the naive model, step by step: who runs, for how long, where in memory, and how each ended.

``pytest --hypothesis-profile thorough tests/reference`` draws thousands of new workloads a system.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.config import build as build_config
from kvsim.config import compose
from tests.harness import RESERVING, SYSTEMS, Log, even, execute, setup, sharegpt_like, simulate, tight, uneven
from tests.reference import model
from tests.reference.records import Job, Setup
from tests.reference.records import Log as ModelLog

EXAMPLES = 3 * settings.default.max_examples // 2  # type: ignore[union-attr]
WAYS: tuple[dict[str, Any], ...] = ({"fast_forward": True}, {"fast_forward": False}, {"check_memory": True})


@st.composite
def setups(draw: st.DrawFn, system: str) -> Setup:
    size = draw(st.sampled_from([1, 2, 4, 8, 16]))
    # vLLM 0 keeps a block in a hundred free
    num_blocks = draw(st.integers(6, 60) if system != "vllm_v0" else st.integers(6, 30) | st.integers(100, 160))
    blocks = draw(st.integers(2, 12) | st.integers(2, 80))
    rest = 0 if system in RESERVING else draw(st.integers(0, size - 1))
    longest = max(2, size * blocks - rest)
    budgets = st.integers(1 if system == "vllm_v1" else longest // 2, 2 * longest)
    return setup(
        system,
        num_blocks=num_blocks,
        block_size=size,
        max_model_len=longest,
        max_num_seqs=draw(st.none() | st.integers(1, 20)),
        max_num_batched_tokens=None if system == "fastertransformer" else draw(st.none() | budgets),
        step_ns=draw(st.sampled_from([uneven, even])),
    )


@st.composite
def workloads(draw: st.DrawFn, setup: Setup) -> list[Job]:
    """Mostly requests that fit, some that never do; bursts, gaps, and arrivals at the ends of even steps."""
    most = min(setup.max_model_len, setup.num_blocks * setup.block_size)
    gaps = st.sampled_from([0, 0, 500, 1000]) | st.integers(0, draw(st.sampled_from([0, 1000, 4000, 50_000])))
    prompts = st.integers(1, most // 2 + 1) | st.integers(1, most // 4 + 1) | st.integers(0, most)
    outputs = st.integers(1, min(50, most // 2 + 1)) | st.integers(0, min(50, most))
    count = draw(st.integers(0, 30))
    rows = draw(st.lists(st.tuples(gaps, prompts, outputs), min_size=count, max_size=count))
    jobs, at = [], 0
    for gap, prompt, output in rows:
        at += gap
        jobs.append(Job(at, prompt, output))
    return jobs[::-1] if draw(st.booleans()) else jobs


def assert_equal(log: Log, expected: ModelLog) -> None:
    assert len(log.steps) == len(expected.steps)
    for step, want in zip(log.steps, expected.steps, strict=True):
        assert (step.step, step.start_ns, step.duration_ns) == (want.step, want.start_ns, want.duration_ns)
        assert step.scheduled == want.scheduled, want.step
        assert step.preempted == sorted(want.preempted), want.step
        assert step.finished == want.finished, want.step
        assert (step.waiting, step.running + step.idle) == (want.waiting, want.running), want.step
        assert step.tables is None or step.tables == want.tables, want.step
    assert log.memory == [step.memory for step in expected.steps]
    facts = ("num_seqs", "num_prefill_tokens", "context_tokens", "num_decode_seqs")
    assert [log.columns.get(name, []) for name in facts] == [
        [step.facts.num_seqs for step in expected.steps],
        [step.facts.total_tokens - step.facts.num_decodes for step in expected.steps],
        [step.facts.context_tokens for step in expected.steps],
        [step.facts.num_decodes for step in expected.steps],
    ]
    assert list(log.requests) == list(range(len(expected.requests)))
    for outcome, want_outcome in zip(log.requests.values(), expected.requests, strict=True):
        assert bool(outcome.reason) == (outcome.state == "rejected")
        outcome.reason = want_outcome.reason
        assert outcome == want_outcome


@pytest.mark.parametrize("system", SYSTEMS)
def test_engine_equals_model(system: str) -> None:
    @settings(max_examples=EXAMPLES)
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        limits = data.draw(setups(system), label="setup")
        jobs = data.draw(workloads(limits), label="jobs")
        expected = model.simulate(limits, jobs)
        for way in WAYS:
            assert_equal(simulate(limits, jobs, **way), expected)

    compare()


@pytest.mark.parametrize("make", [tight, sharegpt_like], ids=["tight", "sharegpt_like"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_engine_equals_model_on_longer_runs(system: str, make: Any) -> None:
    limits, jobs = make(system, seed=1, count=60)
    expected = model.simulate(limits, jobs)
    assert_equal(simulate(limits, jobs), expected)
    assert_equal(simulate(limits, jobs, fast_forward=False), expected)


@pytest.mark.parametrize("system", SYSTEMS)
def test_presets_are_what_is_compared_here(system: str, tmp_path: Any) -> None:
    """The YAML preset decides as the composition of the harness does, on a pool where storage is short."""
    jobs = [Job(row // 3 * 100_000_000, 100 + 37 * row % 300, 10 + 53 * row % 200) for row in range(40)]
    trace = tmp_path / "trace.csv"
    rows = [f"{job.arrival / 1e9},{job.prompt},{job.output}" for job in jobs]
    trace.write_text("\n".join(["arrival_time_s,num_prompt_tokens,num_output_tokens", *rows, ""]))
    budget = 256 if system == "vllm_v1" else None
    limits = {
        "workload": "trace",
        "workload.path": trace,
        "cost": "constant",
        "cost.seconds": 0.03,
        "kv.num_blocks": 150,
        "scheduler.max_model_len": 1024,
        "scheduler.max_num_seqs": 256,
        "scheduler.max_num_batched_tokens": "null" if budget is None else budget,
    }
    preset = build_config(compose([f"system={system}", *(f"{key}={value}" for key, value in limits.items())]))
    pool = {"num_blocks": 150, "block_size": 16, "max_model_len": 1024, "max_num_seqs": 256}
    here = simulate(setup(system, **pool, max_num_batched_tokens=budget, step_ns=lambda facts: 30_000_000), jobs)
    there = execute(preset)
    assert there.steps == here.steps
    assert there.memory == here.memory
    assert there.requests == here.requests
