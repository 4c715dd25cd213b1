"""Lockstep: the clock of the prediction, the work of the other side."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from kvsim.calibrate.measure import StepRecorder
from kvsim.config import build, build_cost, compose
from kvsim.plan import StepPlan
from kvsim.run import Run
from kvsim.validate.case import Sides, execute, validate_case
from kvsim.validate.compare import Case, Tolerance, Verdict
from kvsim.validate.lockstep import Lockstep, predict
from kvsim.validate.parity import repeats_decisions, same_plans

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


def recorded(words: list[str], folder: Path) -> list[StepPlan]:
    run = build(compose(words))
    recorder = StepRecorder(run.executor)
    execute(dataclasses.replace(run, executor=recorder), folder)
    return recorder.plans


def test_parity_sees_another_decision(tmp_path: Path) -> None:
    storm = [*WORDS, "kv.num_blocks=120", "rate=50"]  # preempts
    plans = recorded(storm, tmp_path / "run")
    requests = tmp_path / "run/requests.parquet"
    assert any(plan.preempted for plan in plans)

    def replay(*words: str) -> Run:
        return build(compose([*storm, "executor=replay", f"executor.path={tmp_path / 'run'}", *words]))

    assert repeats_decisions(replay(), tmp_path / "same", plans, requests)
    assert (tmp_path / "same/plans.jsonl.gz").exists()
    assert not repeats_decisions(replay("system=vllm_v0"), tmp_path / "other", plans, requests)
    assert not repeats_decisions(replay("num_requests=40"), tmp_path / "longer", plans, requests)
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
    case = Case("vllm_v1", "light", 8.0)
    result = validate_case(case, sides, tmp_path, repeats=2, limits=Tolerance(0, 0, 0, 0), say=said.append)
    assert {row.verdict for row in result.rows} == {Verdict.PASS, Verdict.REPORTED}
    assert all(row.error == 0 for row in result.rows)
    assert (result.predicted == result.measured).all() and len(result.measured) > 100
    assert len(said) == 3
    steps = (tmp_path / "steps.csv").read_text().splitlines()
    assert len(steps) == 1 + len(result.measured) and steps[0].startswith("step,rows,single_rows,")
