"""The laws on states, time and progress: they hold everywhere, and a planted breach is seen.

A breach that the run itself must stop on is expected as `InvariantError`; the checks of this file find the others.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from kvsim.engine import Engine
from kvsim.kv.contiguous import ReserveMax
from kvsim.plan import NO_ROWS, IntArray, StepPlan, StepResult
from kvsim.request import Request, Sequence, Status
from kvsim.sched.chunked import ChunkedScheduler
from kvsim.sched.fcfs import FCFSScheduler
from tests.harness import (
    Log,
    breach,
    build,
    even,
    every_system,
    execute,
    pressed,
    setup,
    sharegpt_like,
    simulate,
    tight,
    write,
)
from tests.reference.records import Job

DIFFERENT = pytest.raises(AssertionError)
"""What a check of this file says of a breach."""


class TestInvStates:
    """Every request ends completed, rejected with a reason, failed or unfinished."""

    @staticmethod
    def check(log: Log, jobs: list[Job]) -> None:
        assert list(log.requests) == list(range(len(jobs)))
        for outcome in log.requests.values():
            assert outcome.state in ("completed", "rejected", "failed", "unfinished")
            assert (outcome.state == "rejected") == bool(outcome.reason)
            assert (outcome.state == "completed") == (outcome.finished_ns is not None)
        ends = Counter(outcome.state for outcome in log.requests.values())
        assert {state.value: log.summary[state.value] for state in Status} == {state: ends[state] for state in Status}

    @every_system
    @pytest.mark.parametrize("cut", [False, True], ids=["drained", "cut"])
    def test_inv_states_holds(self, system: str, cut: bool) -> None:
        limits, jobs = tight(system, seed=5, count=40)
        jobs = [Job(0, 10**6, 1), Job(0, 0, 5), Job(0, 5, 0), *jobs]
        log = simulate(limits, jobs, **({"drain": False, "duration_ns": 10**9} if cut else {}))
        self.check(log, jobs)
        assert log.finished(Status.REJECTED) == [0, 1, 2]

    @every_system
    def test_inv_states_holds_for_those_who_come_during_the_last_step(self, system: str) -> None:
        jobs = [Job(0, 5, 20), Job(9500, 5, 5), Job(9900, 100, 1), Job(10_100, 5, 5)]
        log = simulate(setup(system, step_ns=even), jobs, drain=False, duration_ns=10_000)
        self.check(log, jobs[:3])
        assert [outcome.state for outcome in log.requests.values()] == ["unfinished", "unfinished", "rejected"]

    @pytest.mark.parametrize("system", ["orca_max", "vllm_paper"])
    def test_inv_states_breach_a_request_is_lost(self, system: str) -> None:
        class Lossy(FCFSScheduler):
            """Does not say that request 3 ended."""

            def update(self, plan: StepPlan, result: StepResult, now: int) -> list[Sequence]:
                return [seq for seq in super().update(plan, result, now) if seq.seq_id != 3]

        with breach("INV-(states|tokens)"):
            pressed(system, scheduler=partial(Lossy, prefill_first=False))


class TestInvClock:
    """Steps last, and each starts when the one before it has ended or later."""

    @staticmethod
    def check(log: Log) -> None:
        assert [step.step for step in log.steps] == list(range(len(log.steps)))
        assert all(step.duration_ns > 0 for step in log.steps)
        assert all(after.start_ns >= before.end_ns for before, after in pairwise(log.steps))

    @every_system
    def test_inv_clock_holds(self, system: str) -> None:
        self.check(pressed(system)[0])

    @pytest.mark.parametrize("duration", [0, -1])
    def test_inv_clock_breach_a_step_that_does_not_last(self, duration: int) -> None:
        limits, jobs = tight("vllm_v1", seed=5)
        sudden = limits.__class__(**{**vars(limits), "step_ns": lambda facts: 1000 if facts.num_seqs > 2 else duration})
        with breach("INV-clock"):
            simulate(sudden, jobs)

    def test_inv_clock_breach_time_goes_back(self) -> None:
        limits, jobs = tight("vllm_v1", seed=5)

        class Backwards:
            def begin(self, plan: StepPlan, now: int, durations: IntArray) -> None:
                self.durations = durations

            def close(self, now: int) -> None:
                pass

            def end(self, ended: list[Sequence], now: int) -> None:
                self.durations *= 2

        with breach("INV-clock"):
            execute(build(limits, jobs), Backwards())


class TestInvCausality:
    """Nothing happens to a request before its arrival, and no token comes before its prompt is computed."""

    @staticmethod
    def check(log: Log, jobs: list[Job]) -> None:
        computed = [0] * len(jobs)
        first: dict[int, int] = {}
        for step in log.steps:
            for request_id in step.preempted:
                computed[request_id] = 0
            for request_id, tokens in step.scheduled:
                assert step.start_ns >= jobs[request_id].arrival
                computed[request_id] += tokens
            for request_id in step.emitted:
                assert computed[request_id] >= jobs[request_id].prompt
                first.setdefault(request_id, step.end_ns)
        for request_id in log.finished():
            outcome = log.requests[request_id]
            assert outcome.first_token_ns == first[request_id]
            assert outcome.finished_ns is not None
            assert jobs[request_id].arrival < first[request_id] <= outcome.finished_ns

    @every_system
    def test_inv_causality_holds(self, system: str) -> None:
        self.check(*pressed(system))

    def test_inv_causality_breach_served_before_arrival(self) -> None:
        class Clairvoyant(Engine):
            ahead = 0

            def _take_arrivals(self, now: int) -> None:
                super()._take_arrivals(now + self.ahead)

        limits, jobs = setup("vllm_v1", step_ns=even), [Job(0, 5, 50), Job(20_400, 5, 5)]
        for ahead, seen in ((0, nullcontext()), (500, DIFFERENT)):
            Clairvoyant.ahead = ahead
            log = execute(build(limits, jobs, fast_forward=False), engine=Clairvoyant)
            with seen:
                self.check(log, jobs)
        Clairvoyant.ahead = 10_000
        with breach("INV-causality"):
            execute(build(limits, jobs, fast_forward=False), engine=Clairvoyant)

    def test_inv_causality_breach_a_token_out_of_half_a_prompt(self) -> None:
        class Hasty(ChunkedScheduler):
            def schedule(self, now: int) -> StepPlan:
                plan = super().schedule(now)
                return plan._replace(num_samples=np.ones_like(plan.num_samples))

        limits, jobs = setup("vllm_v1", max_num_batched_tokens=8), [Job(0, 20, 9)]
        self.check(simulate(limits, jobs), jobs)
        log = simulate(limits, jobs, scheduler=Hasty)
        with DIFFERENT:
            self.check(log, jobs)


class TestInvProgress:
    """A step that schedules nothing while work fits stops the run."""

    @every_system
    def test_inv_progress_holds(self, system: str) -> None:
        log, jobs = pressed(system)
        assert all(step.scheduled for step in log.steps)
        assert len(log.finished()) == len(jobs)
        for before, after in pairwise(log.steps):
            if after.start_ns > before.end_ns:  # idle: nobody was left
                assert before.waiting == 0
                assert sorted(before.finished) == sorted({request_id for request_id, _ in before.scheduled})

    @pytest.mark.parametrize("cut", [False, True], ids=["drained", "cut"])
    def test_inv_progress_breach_nobody_is_admitted(self, cut: bool) -> None:
        class Lazy(FCFSScheduler):
            def schedule(self, now: int) -> StepPlan:
                return super().schedule(now) if self._step < 5 else self._plan(0, NO_ROWS, NO_ROWS, 0, 1)

        limits, jobs = tight("orca_max", seed=5)
        window = {"drain": False, "duration_ns": 10**12} if cut else {}
        with breach("INV-progress"):
            simulate(limits, jobs, scheduler=partial(Lazy, prefill_first=False), **window)

    def test_inv_progress_breach_those_who_run_are_starved(self) -> None:
        class Starving(FCFSScheduler):
            def schedule(self, now: int) -> StepPlan:
                return super().schedule(now) if self._step < 5 else self._plan(0, NO_ROWS, NO_ROWS, 0, 1)

        jobs = [Job(0, 5, 20), Job(10**9, 5, 20)]
        with breach("INV-progress"):
            simulate(setup("orca_max"), jobs, scheduler=partial(Starving, prefill_first=False))

    def test_inv_progress_breach_a_reservation_that_never_fits(self) -> None:
        class Greedy(ReserveMax):
            def reservation(self, request: Request) -> int:
                return 2 * self.max_model_len

        with breach("INV-progress"):
            simulate(setup("orca_max", num_blocks=16), [Job(0, 5, 5)], allocator=Greedy)


class TestInvLittle:
    """L = lambda W: the requests in the system, averaged over time, are those that came times how long they stayed."""

    @staticmethod
    def check(log: Log, jobs: list[Job]) -> None:
        """Exact: what the steps count and what the requests stayed differ by the waits for the next step to start."""
        inside = sum((step.waiting + step.running + step.idle) * step.duration_ns for step in log.steps)
        stays = unseen = 0
        starts = [step.start_ns for step in log.steps]
        for request_id in log.finished():
            outcome, arrival = log.requests[request_id], jobs[request_id].arrival
            assert outcome.finished_ns is not None
            stays += outcome.finished_ns - arrival
            unseen += starts[int(np.searchsorted(starts, arrival))] - arrival
        assert inside + unseen == stays

    @every_system
    def test_inv_little_holds(self, system: str) -> None:
        self.check(*pressed(system))
        limits, jobs = sharegpt_like(system, seed=2, count=60)
        self.check(simulate(limits, jobs), jobs)

    @pytest.mark.parametrize("system", ["orca_max", "vllm_paper", "vllm_v0", "vllm_v1"])
    def test_inv_little_holds_in_the_tables_within_the_sampling_error(self, system: str, tmp_path: Path) -> None:
        limits, jobs = sharegpt_like(system, seed=3, count=100, gap_ns=200_000_000)
        write(build(limits, jobs), tmp_path)
        steps, requests = (pq.read_table(tmp_path / f"{name}.parquet").to_pandas() for name in ("steps", "requests"))
        [summary] = json.loads((tmp_path / "summary.json").read_text())
        horizon = requests.finished_s.max()
        mean_inside = ((steps.num_waiting + steps.num_running) * steps.duration_s).sum() / horizon
        rate = len(requests) / horizon
        mean_stay = (requests.finished_s - requests.arrival_s).mean()
        assert mean_inside == pytest.approx(rate * mean_stay, rel=0.01)
        assert summary["request_throughput"] == pytest.approx(rate)
        assert summary["mean_e2el_ms"] == pytest.approx(1000 * mean_stay)

    def test_inv_little_breach_a_queue_that_is_miscounted(self) -> None:
        class Understating(FCFSScheduler):
            def schedule(self, now: int) -> StepPlan:
                plan = super().schedule(now)
                return plan._replace(num_waiting=max(0, plan.num_waiting - 1))

        log, jobs = pressed("orca_pow2", scheduler=partial(Understating, prefill_first=False))
        with DIFFERENT:
            self.check(log, jobs)
