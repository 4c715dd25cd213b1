"""Lockstep: the clock of the prediction, the work of the other side."""

from __future__ import annotations

import dataclasses
import itertools
import time
from pathlib import Path

import numpy as np
import pytest

from kvsim.calibrate.plans import PlanMaker, Row
from kvsim.config import build, build_cost, compose
from kvsim.kv.paged import PagedAllocator
from kvsim.plan import NO_ROWS, IntArray, StepPlan, StepResult
from kvsim.run import Run
from kvsim.validate.case import Sides, execute, setting_of, validate_case
from kvsim.validate.compare import Case, Tolerance, Verdict
from kvsim.validate.lockstep import Lockstep, predict
from kvsim.validate.parity import TableRecorder, repeats_decisions, same_plans

WORDS = ["rate=8", "num_requests=25", "model=opt-13b", "hardware=h200"]
SLOWER = ["cost.efficiency.gemm_memory=0.7", "cost.efficiency.attention_memory=0.5"]


def test_decisions_are_those_of_the_simulation(tmp_path: Path) -> None:
    cost = build_cost(compose(WORDS))
    run = build(compose(WORDS + SLOWER))
    lockstep = Lockstep(run.executor, cost)
    summary = execute(dataclasses.replace(run, executor=lockstep), tmp_path / "lockstep")
    simulated = execute(build(compose(WORDS)), tmp_path / "simulated")
    assert summary == simulated
    for name in ("requests.parquet", "steps.parquet", "memory.parquet"):
        assert (tmp_path / "lockstep" / name).read_bytes() == (tmp_path / "simulated" / name).read_bytes()
    assert lockstep.predicted == predict(lockstep, cost)
    assert all(slow > fast for slow, fast in zip(lockstep.durations, lockstep.predicted, strict=True))


class SlowCost:
    """Takes a while to predict a second."""

    def decode_run(self, plan: StepPlan, repeats: int) -> IntArray:
        time.sleep(0.01)
        return np.full(repeats, 10**9)


class Clock:
    """An executor whose steps, as a device's, begin where the one before ended."""

    def __init__(self) -> None:
        self._ended = 0

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        start = time.perf_counter_ns()
        schedule = start - self._ended if self._ended else 0
        self._ended = time.perf_counter_ns()
        phases = (schedule, 0, self._ended - start, 0)
        return StepResult(np.array([sum(phases)]), NO_ROWS, phases)


def test_a_prediction_takes_none_of_the_next_steps_time() -> None:
    lockstep = Lockstep(Clock(), SlowCost())
    plan = PlanMaker(8, 16, False, np.random.default_rng(0)).make([Row(1, 5)])
    for _ in range(5):
        assert lockstep.execute(plan, 0, 1, 1).durations.tolist() == [10**9]
    assert sorted(lockstep.durations)[2] < 5_000_000
    assert [sum(phases) for phases in lockstep.breakdowns] == lockstep.durations
    assert min(phase for phases in lockstep.breakdowns for phase in phases) >= 0


def recorded(words: list[str], folder: Path) -> TableRecorder:
    run = build(compose(words))
    recorder = TableRecorder(run.executor)
    execute(dataclasses.replace(run, executor=recorder), folder)
    return recorder


@pytest.mark.parametrize("system", ["vllm_v1", "orca_pow2"])
def test_parity_sees_other_blocks(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*WORDS, f"system={system}", "kv.num_blocks=300"]
    recorder = recorded(words, tmp_path / "run")
    replay = [*words, "executor=replay", f"executor.path={tmp_path / 'run'}"]
    requests = tmp_path / "run/requests.parquet"
    assert repeats_decisions(build(compose(replay)), tmp_path / "same", recorder, requests)
    blocks = {seq_id: list[int]() for step in recorder.added for seq_id, _ in step}
    for seq_id, added in itertools.chain.from_iterable(recorder.added):
        blocks[seq_id] += added
    assert len(blocks) == 25 and all(blocks.values())

    take = PagedAllocator._take
    monkeypatch.setattr(PagedAllocator, "_take", lambda self, count: take(self, count)[::-1])
    again = repeats_decisions(build(compose(replay)), tmp_path / "other", recorder, requests)
    assert again == (system != "vllm_v1")  # a buddy allocator was not changed
    assert '"completed"' in (tmp_path / "other/status.json").read_text()


def test_parity_sees_another_decision(tmp_path: Path) -> None:
    storm = [*WORDS, "kv.num_blocks=120", "rate=50"]  # preempts
    recorder = recorded(storm, tmp_path / "run")
    plans = recorder.plans
    requests = tmp_path / "run/requests.parquet"
    assert any(plan.preempted for plan in plans)

    def replay(*words: str) -> Run:
        return build(compose([*storm, "executor=replay", f"executor.path={tmp_path / 'run'}", *words]))

    assert repeats_decisions(replay(), tmp_path / "same", recorder, requests)
    assert (tmp_path / "same/plans.jsonl.gz").exists()
    assert not repeats_decisions(replay("system=vllm_v0"), tmp_path / "other", recorder, requests)
    assert not repeats_decisions(replay("num_requests=40"), tmp_path / "longer", recorder, requests)
    assert same_plans(plans, plans) and not same_plans(plans, plans[:-1])
    changed = [*plans[:-1], plans[-1]._replace(num_waiting=1)]
    assert not same_plans(plans, changed)


def test_a_case_against_itself_has_no_error(tmp_path: Path) -> None:
    def simulated() -> object:
        return build(compose(WORDS))

    sides = Sides(
        simulated,  # type: ignore[arg-type]
        simulated,  # type: ignore[arg-type]
        lambda path: build(compose([*WORDS, "executor=replay", f"executor.path={path}"])),
        build_cost(compose(WORDS)),
    )
    said: list[str] = []
    case, setting = Case("vllm_v1", "light", 8.0), setting_of(sides.simulated(), sides.measured(), 25)
    assert (setting.model, setting.num_requests, setting.device) == ("opt-13b", 25, None)
    result = validate_case(case, setting, sides, tmp_path, repeats=2, limits=Tolerance(0, 0, 0, 0), say=said.append)
    assert {row.verdict for row in result.rows} == {Verdict.PASS, Verdict.REPORTED}
    assert all(row.error == 0 for row in result.rows)
    assert (result.predicted == result.measured).all() and len(result.measured) > 100
    assert len(said) == 3
    steps = (tmp_path / "steps.csv").read_text().splitlines()
    assert len(steps) == 1 + len(result.measured) and steps[0].startswith("step,rows,single_rows,")
