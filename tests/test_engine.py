"""The loop: what comes first at one instant, idle time, where a run ends, requests that never fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from kvsim.request import Status
from kvsim.workload.base import Limits
from tests.harness import SYSTEMS, build, even, every_system, execute, setup, sharegpt_like, simulate, tight, write
from tests.reference.records import Job

JOINING = [system for system in SYSTEMS if system != "fastertransformer"]
ways = pytest.mark.parametrize("fast_forward", [True, False], ids=["jumping", "stepping"])


class TestOneInstant:
    """A step's end, then arrivals by row, then the decision. Steps last 1000 ns."""

    @ways
    @pytest.mark.parametrize("system", JOINING)
    def test_an_arrival_at_the_end_of_a_step_joins_the_next(self, system: str, fast_forward: bool) -> None:
        jobs = [Job(0, 4, 9), Job(3000, 4, 2), Job(3001, 4, 2)]
        log = simulate(setup(system, step_ns=even), jobs, fast_forward=fast_forward)
        first: dict[int, int] = {}
        for step in log.steps:
            for request_id, _ in step.scheduled:
                first.setdefault(request_id, step.start_ns)
        assert first == {0: 0, 1: 3000, 2: 4000}

    @ways
    @pytest.mark.parametrize("system", JOINING)
    def test_memory_given_back_at_that_instant_can_be_had(self, system: str, fast_forward: bool) -> None:
        """The pool holds one; the next comes at the very end of the first."""
        jobs = [Job(0, 4, 3), Job(3000, 4, 3)]
        log = simulate(setup(system, num_blocks=2, max_model_len=8, step_ns=even), jobs, fast_forward=fast_forward)
        assert [step.start_ns for step in log.steps] == [0, 1000, 2000, 3000, 4000, 5000]
        assert [step.waiting for step in log.steps] == [0] * 6
        assert log.steps[2].finished == [0]

    @ways
    @every_system
    def test_arrivals_at_one_instant_queue_by_row(self, system: str, fast_forward: bool) -> None:
        jobs = [Job(2000, 4, 2), Job(0, 4, 3), Job(2000, 4, 2), Job(2000, 4, 2)]
        log = simulate(setup(system, step_ns=even, max_num_seqs=1), jobs, fast_forward=fast_forward)
        order = [request_id for step in log.steps for request_id in step.finished]
        assert order == [1, 0, 2, 3]

    def test_the_order_of_the_workload_is_kept_whatever_the_ids(self) -> None:
        jobs = [Job(0, 4, 2)] * 12
        log = simulate(setup("vllm_v1", step_ns=even), jobs)
        assert log.steps[0].scheduled == [(request_id, 4) for request_id in range(12)]


class TestIdle:
    @ways
    @every_system
    def test_the_clock_jumps_to_the_next_arrival(self, system: str, fast_forward: bool) -> None:
        far = 3600 * 10**9
        jobs = [Job(500, 4, 2), Job(far + 7, 4, 2)]
        log = simulate(setup(system, step_ns=even), jobs, fast_forward=fast_forward)
        assert [step.start_ns for step in log.steps] == [500, 1500, far + 7, far + 1007]
        assert log.summary["mean_batch_size"] == pytest.approx(4000 / (far + 2007))

    @every_system
    def test_misfits_while_idle_are_passed_over(self, system: str) -> None:
        log = simulate(setup(system, step_ns=even), [Job(500, 0, 2), Job(9000, 4, 1), Job(20_000, 10**6, 1)])
        assert [step.start_ns for step in log.steps] == [9000]
        assert log.finished(Status.REJECTED) == [0, 2]


class TestEnd:
    """`drain=false` stops at `duration`, wherever it falls."""

    @every_system
    @pytest.mark.parametrize("make", [tight, sharegpt_like], ids=["tight", "sharegpt_like"])
    def test_a_cut_jump_equals_steps_that_are_cut(self, system: str, make: Any, tmp_path: Path) -> None:
        limits, jobs = make(system, 3, count=30)
        whole = simulate(limits, jobs)
        steps = whole.steps
        longest = max(range(len(steps)), key=lambda step: steps[step].duration_ns)
        middle, late = steps[len(steps) // 2], steps[-3]
        ends = [steps[0].end_ns, middle.end_ns, middle.end_ns + 1, late.end_ns - 1, late.start_ns + 1]
        ends += [steps[longest].start_ns + steps[longest].duration_ns // 2, steps[-1].end_ns, 2 * steps[-1].end_ns]
        for end in ends:
            files = [
                write(build(limits, jobs, drain=False, duration_ns=end, fast_forward=jump), tmp_path / f"{end}-{jump}")
                for jump in (True, False)
            ]
            assert files[0] == files[1], end
            started = [step for step in steps if step.start_ns < end]
            table = pq.read_table(tmp_path / f"{end}-True" / "steps.parquet")
            assert table["start_s"].to_pylist() == [step.start_ns / 1e9 for step in started]

    @ways
    @every_system
    def test_who_has_not_ended_is_unfinished_and_gives_memory_back(self, system: str, fast_forward: bool) -> None:
        jobs = [Job(0, 4, 3), Job(0, 4, 30), Job(500, 4, 3), Job(900, 4, 60)]
        run = build(
            setup(system, step_ns=even, num_blocks=32), jobs, drain=False, duration_ns=10_500, fast_forward=fast_forward
        )
        log = execute(run)
        assert all(log.requests[row].state == "unfinished" for row in (1, 3))
        assert log.summary["unfinished"] == len(log.finished(Status.UNFINISHED))
        assert log.steps[-1].start_ns == 10_000
        assert run.allocator.usage().free == run.pool_tokens
        assert all(outcome.finished_ns is None for outcome in log.requests.values() if outcome.state == "unfinished")

    @ways
    def test_what_falls_on_the_last_instant_counts(self, fast_forward: bool) -> None:
        jobs = [Job(0, 4, 10), Job(0, 4, 11)]
        limits = setup("vllm_v1", step_ns=even)
        log = simulate(limits, jobs, drain=False, duration_ns=10_000, fast_forward=fast_forward)
        assert [outcome.state for outcome in log.requests.values()] == ["completed", "unfinished"]
        assert log.summary["output_throughput"] == pytest.approx(20 / 10e-6)
        assert log.summary["request_throughput"] == pytest.approx(1 / 10e-6)
        assert len(log.steps) == 10

    @ways
    def test_a_token_of_a_step_that_the_end_cuts_was_never_put_out(self, fast_forward: bool) -> None:
        jobs = [Job(0, 4, 30), Job(9000, 4, 5)]
        log = simulate(setup("vllm_v1", step_ns=even), jobs, drain=False, duration_ns=9500, fast_forward=fast_forward)
        assert log.requests[0].first_token_ns == 1000
        assert log.requests[1].first_token_ns is None
        assert log.summary["output_throughput"] == pytest.approx(9 / 9.5e-6)

    def test_arrivals_exactly_at_the_duration_stay_out(self) -> None:
        assert Limits(1e-5, None).count(np.array([0, 9_999, 10_000, 10_001])) == 2
        jobs = [Job(0, 4, 30), Job(10_000, 4, 5)]
        log = simulate(setup("vllm_v1", step_ns=even), jobs, drain=False, duration_ns=10_000)
        assert list(log.requests) == [0]
        assert log.steps[-1].end_ns == 10_000

    @every_system
    def test_a_duration_after_the_last_completion_changes_only_the_means(self, system: str) -> None:
        limits, jobs = tight(system, seed=3)
        drained = simulate(limits, jobs)
        end = 2 * drained.steps[-1].end_ns
        waited = simulate(limits, jobs, drain=False, duration_ns=end)
        assert (waited.steps, waited.memory, waited.requests) == (drained.steps, drained.memory, drained.requests)
        assert waited.summary["request_throughput"] == pytest.approx(len(jobs) / (end / 1e9))
        assert waited.summary["mean_ttft_ms"] == drained.summary["mean_ttft_ms"]

    def test_with_drain_the_duration_ends_only_the_arrivals(self) -> None:
        limits, jobs = tight("vllm_v1", seed=3)
        assert simulate(limits, jobs, duration_ns=1000).steps == simulate(limits, jobs).steps


class TestMisfits:
    """Requests that can never run are data: they end rejected with a reason."""

    @every_system
    @pytest.mark.parametrize(
        ("job", "reason"),
        [
            (Job(10, 0, 5), "the prompt is empty"),
            (Job(10, 5, 0), "no output tokens"),
            (Job(10, 30, 35), "prompt + output 65 > max_model_len 64"),
            (Job(10, 64, 1), "max_model_len 64"),
            (Job(10, 10**9, 10**9), "max_model_len 64"),
        ],
        ids=["empty", "no output", "too long", "full prompt", "huge"],
    )
    def test_a_misfit_is_rejected_at_arrival(self, system: str, job: Job, reason: str) -> None:
        log = simulate(setup(system), [Job(0, 4, 9), job, Job(20, 32, 32)])
        outcome = log.requests[1]
        assert outcome.state == "rejected"
        assert reason in outcome.reason
        assert (outcome.first_token_ns, outcome.finished_ns, outcome.num_preemptions) == (None, None, 0)
        assert log.finished() == [0, 2]

    @every_system
    def test_all_misfits_make_a_run_without_steps(self, system: str, tmp_path: Path) -> None:
        run = build(setup(system), [Job(0, 0, 1), Job(10**9, 65, 1)])
        write(run, tmp_path)
        assert pq.read_table(tmp_path / "steps.parquet").num_rows == 0
        requests = pq.read_table(tmp_path / "requests.parquet").to_pydict()
        assert requests["state"] == ["rejected"] * 2
        assert requests["first_token_s"] == [None] * 2

    def test_the_watermark_narrows_what_fits(self) -> None:
        """vLLM 0 keeps one block in a hundred free at admission, for ever."""
        jobs = [Job(0, 390, 7), Job(0, 396, 1), Job(0, 390, 6)]
        log = simulate(setup("vllm_v0", num_blocks=100, max_model_len=400), jobs)
        assert [outcome.state for outcome in log.requests.values()] == ["rejected", "rejected", "completed"]
        assert "397 > 396" in log.requests[0].reason


class TestSmallWorkloads:
    @ways
    @every_system
    def test_one_token_answers_end_with_their_prompt(self, system: str, fast_forward: bool) -> None:
        log = simulate(setup(system, step_ns=even), [Job(0, 4, 1), Job(0, 9, 1)], fast_forward=fast_forward)
        assert [step.finished for step in log.steps] == [[0, 1]]
        assert (log.summary["mean_ttft_ms"], log.summary["mean_e2el_ms"]) == (0.001, 0.001)
        assert log.summary["mean_tpot_ms"] is None
        assert log.summary["mean_itl_ms"] is None

    @every_system
    def test_an_empty_workload_is_a_run(self, system: str, tmp_path: Path) -> None:
        files = write(build(setup(system), []), tmp_path / "a")
        assert files == write(build(setup(system), [], fast_forward=False), tmp_path / "b")
        tables = ("memory.parquet", "requests.parquet", "steps.parquet")
        assert all(pq.read_table(tmp_path / "a" / name).num_rows == 0 for name in tables)
        summary = simulate(setup(system), []).summary
        assert (summary["completed"], summary["steps"], summary["mean_ttft_ms"]) == (0, 0, None)
        assert summary["saturated"] is None

    @every_system
    def test_an_empty_workload_that_is_waited_for(self, system: str) -> None:
        summary = simulate(setup(system), [], drain=False, duration_ns=10**9).summary
        assert (summary["mean_batch_size"], summary["kv_external_frac"], summary["request_throughput"]) == (0, 1, 0)

    def test_one_request_by_hand(self) -> None:
        """SYSTEMS: the step that finishes the prompt emits token 1, and the KV at the end holds p + o - 1 tokens."""
        log = simulate(setup("vllm_v1", step_ns=even, num_blocks=8), [Job(250, 6, 3)])
        assert [step.scheduled for step in log.steps] == [[(0, 6)], [(0, 1)], [(0, 1)]]
        assert [step.tables for step in simulate(setup("vllm_v1"), [Job(250, 6, 3)], fast_forward=False).steps] == [
            {0: [0, 1]}
        ] * 3
        assert [classes["token_state"] for classes in log.memory] == [6, 7, 8]
        assert [classes["internal"] for classes in log.memory] == [2, 1, 0]
        outcome = log.requests[0]
        assert (outcome.first_token_ns, outcome.finished_ns) == (1250, 3250)
        assert log.summary["mean_tpot_ms"] == 0.001
        assert log.summary["mean_normalized_latency"] == pytest.approx(1e-6)
