"""Runs that must be equal: with another hash seed, by jumping or stepping, and replayed."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsim.config import build as build_config
from kvsim.config import compose
from kvsim.errors import ConfigError
from kvsim.executor import ReplayExecutor, SimExecutor
from kvsim.plan import UNBOUNDED, IntArray, StepPlan, StepResult
from kvsim.request import Request
from kvsim.sched.chunked import ChunkedScheduler
from kvsim.sched.fcfs import FCFSScheduler
from tests.harness import (
    ROOT,
    SYSTEMS,
    FactsCost,
    breach,
    build,
    contents,
    every_system,
    pressed,
    setup,
    sharegpt_like,
    simulate,
    tight,
    write,
)
from tests.reference.records import Job, Setup

WRITE = "import sys; from tests.test_equivalence import write_every_system as write; write(*sys.argv[1:])"


def write_every_system(folder: str, order: str) -> None:
    """A run folder a system, from the presets; with `order` "hashed", by a scheduler whose queue is ordered by hash."""

    class Hashed(FCFSScheduler):
        def add_request(self, request: Request, now: int) -> None:
            super().add_request(request, now)
            self.waiting = type(self.waiting)(sorted(self.waiting, key=lambda seq: hash(str(seq.seq_id))))

    if order == "hashed":
        limits, jobs = tight("vllm_paper", seed=1)
        write(build(limits, jobs, scheduler=partial(Hashed, prefill_first=False)), Path(folder, "hashed"))
        return
    for system in SYSTEMS:
        options = (f"system={system}", "workload=sharegpt", "rate=3", "num_requests=120", "seed=11")
        run = build_config(compose([*options, "engine.record_plans=true", "kv.num_blocks=400"]))
        write(run, Path(folder, system))


class TestInvDeterminism:
    """Same configuration and seed, same bytes, whatever PYTHONHASHSEED."""

    @staticmethod
    def runs(path: Path, order: str) -> list[dict[str, dict[str, bytes]]]:
        jobs = []
        for hash_seed in ("1", "2"):
            environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
            command = [sys.executable, "-c", WRITE, str(path / hash_seed), order]
            jobs.append(subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True))
        for job in jobs:
            assert job.communicate()[1].count("Traceback") == 0 == job.returncode
        return [{run.name: contents(run) for run in sorted((path / name).iterdir())} for name in ("1", "2")]

    def test_inv_determinism_holds(self, tmp_path: Path) -> None:
        first, second = self.runs(tmp_path, "queued")
        assert first == second
        assert list(first) == sorted(SYSTEMS)
        names = ["memory.parquet", "plans.jsonl.gz", "requests.parquet", "steps.parquet", "summary.json"]
        assert all(list(files) == names for files in first.values())

    def test_inv_determinism_another_seed_is_another_run(self, tmp_path: Path) -> None:
        summaries = []
        for seed in (11, 12):
            run = build_config(compose(["rate=3", "num_requests=50", f"seed={seed}"]))
            summaries.append(write(run, tmp_path / str(seed))["requests.parquet"])
        assert summaries[0] != summaries[1]

    def test_inv_determinism_breach_an_order_that_depends_on_hashing(self, tmp_path: Path) -> None:
        first, second = self.runs(tmp_path, "hashed")
        assert first != second


class TestInvFastForward:
    """Jumping over identical decode steps and stepping write the same bytes."""

    @staticmethod
    def both(limits: Setup, jobs: list[Job], path: Path, **parts: Any) -> list[dict[str, bytes]]:
        return [write(build(limits, jobs, fast_forward=jump, **parts), path / str(jump)) for jump in (True, False)]

    @every_system
    @pytest.mark.parametrize("make", [tight, partial(sharegpt_like, count=16)], ids=["tight", "sharegpt_like"])
    def test_inv_fast_forward_holds(self, system: str, make: Any, tmp_path: Path) -> None:
        for seed in range(20):
            limits, jobs = make(system, seed)
            jumped, stepped = self.both(limits, jobs, tmp_path / str(seed))
            assert jumped == stepped, seed

    def test_inv_fast_forward_jumps(self) -> None:
        class Counting(SimExecutor):
            calls = 0

            def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
                Counting.calls += 1
                return super().execute(plan, now, max_repeats, until)

        limits, jobs = sharegpt_like("vllm_v1", 0)
        log = simulate(limits, jobs, executor=Counting)
        assert Counting.calls < len(log.steps) / 5

    def test_inv_fast_forward_breach_a_cost_that_approximates(self, tmp_path: Path) -> None:
        class Flat(FactsCost):
            def decode_run(self, plan: StepPlan, repeats: int) -> IntArray:
                return np.repeat(super().decode_run(plan, 1), repeats)

        limits, jobs = sharegpt_like("vllm_v1", 0, count=5)
        flat = lambda _, outcomes: SimExecutor(Flat(limits.step_ns), outcomes)  # noqa: E731
        jumped, stepped = self.both(limits, jobs, tmp_path, executor=flat)
        assert jumped["steps.parquet"] != stepped["steps.parquet"]

    def test_inv_fast_forward_breach_a_decision_slept_through(self, tmp_path: Path) -> None:
        class Drowsy(ChunkedScheduler):
            """Says that a decision holds until somebody ends, whether or not memory does."""

            def schedule(self, now: int) -> StepPlan:
                plan = super().schedule(now)
                return plan._replace(max_repeats=UNBOUNDED) if plan.num_decodes == len(plan.seq_ids) else plan

        class Sleepy(FCFSScheduler):
            """Sleeps through the admission that a preemption put off."""

            def schedule(self, now: int) -> StepPlan:
                plan = super().schedule(now)
                return plan._replace(max_repeats=2) if plan.preempted else plan

        with breach("INV-blocks"):
            pressed("vllm_v1", scheduler=Drowsy)
        limits, jobs = setup("vllm_paper", num_blocks=4), [Job(0, 4, 5), Job(0, 1, 3), Job(0, 1, 3)]
        jumped, stepped = self.both(limits, jobs, tmp_path, scheduler=partial(Sleepy, prefill_first=False))
        assert jumped["plans.jsonl.gz"] != stepped["plans.jsonl.gz"]


class TestInvParity:
    """Fed with recorded durations, the same decisions come out."""

    @every_system
    @pytest.mark.parametrize("fast_forward", [True, False], ids=["jumping", "stepping"])
    def test_inv_parity_of_a_replayed_run(self, system: str, fast_forward: bool, tmp_path: Path) -> None:
        limits, jobs = tight(system, seed=5, count=80)
        recorded = write(build(limits, jobs), tmp_path / "recorded")
        replay = lambda _, outcomes: ReplayExecutor.from_run(tmp_path / "recorded", outcomes)  # noqa: E731
        replayed = write(build(limits, jobs, executor=replay, fast_forward=fast_forward), tmp_path / "replayed")
        assert replayed == recorded

    def test_inv_parity_breach_other_durations(self) -> None:
        log, jobs = pressed("vllm_v1")
        limits, _ = tight("vllm_v1", seed=5, count=80)
        durations = np.array(log.columns["duration_ns"]) * 2
        slower = simulate(limits, jobs, executor=lambda _, outcomes: ReplayExecutor(np.tile(durations, 2), outcomes))
        assert [step.scheduled for step in slower.steps] != [step.scheduled for step in log.steps]

    def test_inv_parity_breach_another_workload(self) -> None:
        log, jobs = pressed("vllm_v1")
        limits, _ = tight("vllm_v1", seed=5, count=80)
        durations = np.array(log.columns["duration_ns"])
        longer = [Job(job.arrival, job.prompt, job.output + 1) for job in jobs]
        with pytest.raises(ConfigError, match="replay the same run"):
            simulate(limits, longer, executor=lambda _, outcomes: ReplayExecutor(durations, outcomes))
