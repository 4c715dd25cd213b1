"""The laws of DESIGN section 7, one class each: they hold for every system, and a planted breach of each is seen.

A breach that the run itself must stop on is expected as `InvariantError`; the checks of this file find the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from kvsim.config import build as build_config
from kvsim.config import compose
from kvsim.engine import Engine
from kvsim.errors import ConfigError, InvariantError
from kvsim.executor import ReplayExecutor, SimExecutor
from kvsim.kv.contiguous import ReserveMax
from kvsim.kv.paged import PagedAllocator
from kvsim.plan import NO_ROWS, UNBOUNDED, IntArray, PoolUsage, StepPlan, StepResult
from kvsim.request import Request, Sequence, Status
from kvsim.results import RunFolder
from kvsim.run import Run
from kvsim.sched.chunked import ChunkedScheduler
from kvsim.sched.fcfs import FCFSScheduler
from kvsim.workload.outcomes import Outcomes
from tests.harness import (
    PREEMPTING,
    ROOT,
    SYSTEMS,
    FactsCost,
    Log,
    build,
    contents,
    even,
    execute,
    setup,
    sharegpt_like,
    simulate,
    tight,
    write,
)
from tests.reference.records import Job

every_system = pytest.mark.parametrize("system", SYSTEMS)
DIFFERENT = pytest.raises(AssertionError)
"""What a check of this file says of a breach."""


def pressed(system: str, **parts: Any) -> tuple[Log, list[Job]]:
    """A run on a pool that is too small, and its jobs."""
    limits, jobs = tight(system, seed=5, count=80)
    return simulate(limits, jobs, **parts), jobs


def breach(name: str) -> Any:
    return pytest.raises(InvariantError, match=f"^{name}: ")


class BookKeeper:
    """Looks into the allocator's books at every plan."""

    def __init__(self, run: Run) -> None:
        self.allocator = run.allocator
        self.looks = 0

    def begin(self, plan: StepPlan, now: int, durations: IntArray) -> None:
        self.allocator.check_integrity()
        usage = self.allocator.usage()
        assert usage.free + usage.held == usage.total
        self.looks += 1

    def end(self, ended: list[Sequence], now: int) -> None:
        pass


class TestInvBlocks:
    """Every block is free or owned once, counts add up, and in the end all are free."""

    @every_system
    @pytest.mark.parametrize("cut", [False, True], ids=["drained", "cut"])
    def test_inv_blocks_holds(self, system: str, cut: bool) -> None:
        limits, jobs = tight(system, seed=5, count=80)
        run = build(limits, jobs, fast_forward=False, drain=not cut, duration_ns=300_000 if cut else None)
        keeper = BookKeeper(run)
        log = execute(run, keeper)
        assert keeper.looks == len(log.steps) > 0
        assert bool(log.finished(Status.UNFINISHED)) == cut
        assert {sum(classes.values()) for classes in log.memory} == {run.pool_tokens}
        assert min(min(classes.values()) for classes in log.memory) >= 0
        assert run.allocator.usage().free == run.pool_tokens
        assert not run.allocator.tables

    def test_inv_blocks_breach_a_block_is_not_given_back(self) -> None:
        class Leaky(PagedAllocator):
            def free(self, seq: Sequence) -> None:
                if seq.seq_id == 7:
                    self._tables[7].pop()
                    self._held_blocks -= 1
                super().free(seq)

        with breach("INV-blocks"):
            pressed("vllm_paper", allocator=Leaky)

    def test_inv_blocks_breach_a_block_is_owned_twice(self) -> None:
        class Sharing(PagedAllocator):
            def allocate(self, seq: Sequence, num_tokens: int) -> bool:
                done = super().allocate(seq, num_tokens)
                if done and len(self._tables) == 2:
                    first, second = self._tables.values()
                    second[0] = first[0]
                return done

        with breach("INV-blocks"):
            pressed("vllm_v1", allocator=Sharing, check_memory=True)
        with breach("INV-blocks"):
            pressed("vllm_v1", allocator=Sharing)

    def test_inv_blocks_breach_a_table_is_too_short(self) -> None:
        class Stingy(PagedAllocator):
            def _blocks_of(self, num_tokens: int) -> int:
                return max(1, super()._blocks_of(num_tokens) - 1)

        with breach("INV-blocks"):
            pressed("vllm_paper", allocator=Stingy, check_memory=True)

    def test_inv_blocks_breach_memory_does_not_add_up(self) -> None:
        class Boasting(PagedAllocator):
            def usage(self) -> PoolUsage:
                usage = super().usage()
                return usage._replace(free=usage.free + 1)

        with breach("INV-blocks"):
            pressed("vllm_paper", allocator=Boasting)

    def test_inv_blocks_breach_freed_twice(self) -> None:
        class Eager(FCFSScheduler):
            def update(self, plan: StepPlan, result: StepResult) -> list[Sequence]:
                ended = super().update(plan, result)
                self._release(ended)
                return ended

        with breach("INV-blocks"):
            pressed("orca_max", scheduler=partial(Eager, prefill_first=False))


class TestInvTokens:
    """Over completed requests the tokens emitted are those asked for, none twice, and their KV is all there."""

    @staticmethod
    def check(log: Log, jobs: list[Job]) -> None:
        emitted: Counter[int] = Counter()
        known = [job.prompt for job in jobs]
        computed = [0] * len(jobs)
        for step in log.steps:
            assert len(set(step.emitted)) == len(step.emitted)
            for request_id in step.preempted:
                computed[request_id] = 0
            for request_id, tokens in step.scheduled:
                computed[request_id] += tokens
                assert computed[request_id] <= known[request_id]
            for request_id in step.emitted:
                assert computed[request_id] == known[request_id]
                known[request_id] += 1
            emitted.update(step.emitted)
        completed = log.finished()
        assert emitted == {request_id: jobs[request_id].output for request_id in completed}
        assert all(computed[request_id] == jobs[request_id].prompt + jobs[request_id].output - 1 for request_id in completed)

    @every_system
    def test_inv_tokens_holds(self, system: str) -> None:
        log, jobs = pressed(system)
        assert bool(log.summary["num_preemptions"]) == (system in PREEMPTING)
        self.check(log, jobs)
        asked = sum(jobs[request_id].output for request_id in log.finished())
        assert log.summary["total_output_tokens"] == sum(log.columns["num_emitted"]) == asked

    @pytest.mark.parametrize("more", [1, -1])
    def test_inv_tokens_breach_answers_of_another_length(self, more: int) -> None:
        class Other(Outcomes):
            def add(self, request_id: int, num_output_tokens: int) -> None:
                super().add(request_id, max(1, num_output_tokens + more))

        with breach("INV-tokens"):
            pressed("orca_max", outcomes=Other())

    def test_inv_tokens_breach_resident_tokens_are_miscounted(self) -> None:
        class Miscounting(PagedAllocator):
            def allocate(self, seq: Sequence, num_tokens: int) -> bool:
                self._resident += 1
                return super().allocate(seq, num_tokens)

        with breach("INV-tokens"):
            pressed("vllm_paper", allocator=Miscounting)

    def test_inv_tokens_breach_generated_tokens_forgotten_by_a_preemption(self) -> None:
        class Forgetful(FCFSScheduler):
            def _preempt_last(self) -> Sequence:
                seq = super()._preempt_last()
                seq.num_tokens = seq.request.num_prompt_tokens
                return seq

        log, jobs = pressed("vllm_paper", scheduler=partial(Forgetful, prefill_first=False))
        with DIFFERENT:
            self.check(log, jobs)


LOST = pytest.mark.xfail(strict=True, reason="a request that never ends is written as unfinished")


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
        jobs = [Job(0, 10**6, 1), Job(0, 0, 5), Job(0, 5, 0)] + jobs
        log = simulate(limits, jobs, **({"drain": False, "duration_ns": 10**9} if cut else {}))
        self.check(log, jobs)
        assert log.finished(Status.REJECTED) == [0, 1, 2]

    @pytest.mark.xfail(strict=True, reason="arrivals during the step that the end cuts are never taken")
    @every_system
    def test_inv_states_holds_for_those_who_come_during_the_last_step(self, system: str) -> None:
        jobs = [Job(0, 5, 20), Job(9500, 5, 5), Job(9900, 100, 1), Job(10_100, 5, 5)]
        log = simulate(setup(system, step_ns=even), jobs, drain=False, duration_ns=10_000)
        self.check(log, jobs[:3])
        assert [outcome.state for outcome in log.requests.values()] == ["unfinished", "unfinished", "rejected"]

    @pytest.mark.parametrize("system", ["orca_max", pytest.param("vllm_paper", marks=LOST)])
    def test_inv_states_breach_a_request_is_lost(self, system: str) -> None:
        class Lossy(FCFSScheduler):
            """Does not say that request 3 ended."""

            def update(self, plan: StepPlan, result: StepResult) -> list[Sequence]:
                return [seq for seq in super().update(plan, result) if seq.seq_id != 3]

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

    @pytest.mark.xfail(strict=True, reason="0 divides the executor by zero, below 0 SimPy refuses: not an InvariantError")
    @pytest.mark.parametrize("duration", [0, -1])
    def test_inv_clock_breach_a_step_that_does_not_last(self, duration: int) -> None:
        limits, jobs = tight("vllm_v1", seed=5)
        sudden = limits.__class__(**{**vars(limits), "step_ns": lambda facts: 1000 if facts.num_seqs > 2 else duration})
        with breach("INV-clock"):
            simulate(sudden, jobs)

    def test_inv_clock_breach_time_goes_back(self) -> None:
        limits, jobs = tight("vllm_v1", seed=5)
        run = build(limits, jobs)

        class Backwards(BookKeeper):
            def begin(self, plan: StepPlan, now: int, durations: IntArray) -> None:
                self.durations = durations

            def end(self, ended: list[Sequence], now: int) -> None:
                self.durations *= 2

        with breach("INV-clock"):
            execute(run, Backwards(run))


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
            def schedule(self) -> StepPlan:
                plan = super().schedule()
                return plan._replace(num_samples=np.ones_like(plan.num_samples))

        limits, jobs = setup("vllm_v1", max_num_batched_tokens=8), [Job(0, 20, 9)]
        self.check(simulate(limits, jobs), jobs)
        log = simulate(limits, jobs, scheduler=Hasty)
        with DIFFERENT:
            self.check(log, jobs)


WRITE = "import sys; from tests.test_invariants import write_every_system as write; write(*sys.argv[1:])"


def write_every_system(folder: str, order: str) -> None:
    """A run folder a system, from the presets; with `order` "hashed", by a scheduler whose queue is ordered by hash."""

    class Hashed(FCFSScheduler):
        def add_request(self, request: Request) -> None:
            super().add_request(request)
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
    def both(limits: Any, jobs: list[Job], path: Path, **parts: Any) -> list[dict[str, bytes]]:
        return [write(build(limits, jobs, fast_forward=jump, **parts), path / str(jump)) for jump in (True, False)]

    @every_system
    @pytest.mark.parametrize("make", [tight, partial(sharegpt_like, count=16)], ids=["tight", "sharegpt_like"])
    def test_inv_fast_forward_holds(self, system: str, make: Any, tmp_path: Path) -> None:
        for seed in range(20):
            jumped, stepped = self.both(*make(system, seed), tmp_path / str(seed))
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

            def schedule(self) -> StepPlan:
                plan = super().schedule()
                return plan._replace(max_repeats=UNBOUNDED) if plan.num_decodes == len(plan.seq_ids) else plan

        class Sleepy(FCFSScheduler):
            """Sleeps through the admission that a preemption put off."""

            def schedule(self) -> StepPlan:
                plan = super().schedule()
                return plan._replace(max_repeats=2) if plan.preempted else plan

        with breach("INV-blocks"):
            pressed("vllm_v1", scheduler=Drowsy)
        limits, jobs = setup("vllm_paper", num_blocks=4), [Job(0, 4, 5), Job(0, 1, 3), Job(0, 1, 3)]
        jumped, stepped = self.both(limits, jobs, tmp_path, scheduler=partial(Sleepy, prefill_first=False))
        assert jumped["plans.jsonl.gz"] != stepped["plans.jsonl.gz"]


COPIED = pytest.mark.xfail(strict=True, reason="SimPy makes a copy from its args, which InvariantError does not allow")


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

    @pytest.mark.parametrize("cut", [False, pytest.param(True, marks=COPIED)], ids=["drained", "cut"])
    def test_inv_progress_breach_nobody_is_admitted(self, cut: bool) -> None:
        class Lazy(FCFSScheduler):
            def schedule(self) -> StepPlan:
                return super().schedule() if self._step < 5 else self._plan(0, NO_ROWS, NO_ROWS, 0, 1)

        limits, jobs = tight("orca_max", seed=5)
        window = {"drain": False, "duration_ns": 10**12} if cut else {}
        with breach("INV-progress"):
            simulate(limits, jobs, scheduler=partial(Lazy, prefill_first=False), **window)

    def test_inv_progress_breach_those_who_run_are_starved(self) -> None:
        class Starving(FCFSScheduler):
            def schedule(self) -> StepPlan:
                return super().schedule() if self._step < 5 else self._plan(0, NO_ROWS, NO_ROWS, 0, 1)

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
            def schedule(self) -> StepPlan:
                plan = super().schedule()
                return plan._replace(num_waiting=max(0, plan.num_waiting - 1))

        log, jobs = pressed("orca_pow2", scheduler=partial(Understating, prefill_first=False))
        with DIFFERENT:
            self.check(log, jobs)


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


def test_a_breach_leaves_no_results(tmp_path: Path) -> None:
    """The run stops with an error; what it wrote cannot be mistaken for results."""

    class Leaky(PagedAllocator):
        def free(self, seq: Sequence) -> None:
            super().free(seq)
            if seq.seq_id == 7:
                self._free.popleft()

    limits, jobs = tight("vllm_paper", seed=5)
    with breach("INV-blocks"), RunFolder(tmp_path) as folder:
        build(limits, jobs, allocator=Leaky).execute(folder)
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["state"] == "failed"
    assert status["error"].startswith("InvariantError: INV-blocks")
