"""INV-blocks and INV-tokens: what is held, stored and put out adds up, and a planted breach is seen."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from kvsim.kv.paged import PagedAllocator
from kvsim.plan import IntArray, PoolUsage, StepPlan, StepResult
from kvsim.request import Sequence, Status
from kvsim.results import RunFolder
from kvsim.run import Run
from kvsim.sched.fcfs import FCFSScheduler
from kvsim.workload.outcomes import Outcomes
from tests.harness import (
    PREEMPTING,
    Log,
    breach,
    build,
    every_system,
    execute,
    pressed,
    tight,
)
from tests.reference.records import Job

DIFFERENT = pytest.raises(AssertionError)
"""What a check of this file says of a breach."""


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

    def close(self, now: int) -> None:
        pass

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
            def update(self, plan: StepPlan, result: StepResult, now: int) -> list[Sequence]:
                ended = super().update(plan, result, now)
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
        assert all(computed[row] == jobs[row].prompt + jobs[row].output - 1 for row in completed)

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


def test_a_breach_leaves_no_results(tmp_path: Path) -> None:
    """The run stops with an error; what it wrote cannot be mistaken for results."""

    class Leaky(PagedAllocator):
        def free(self, seq: Sequence) -> None:
            super().free(seq)
            if seq.seq_id == 7:
                self._freed.popleft()

    limits, jobs = tight("vllm_paper", seed=5)
    with breach("INV-blocks"), RunFolder(tmp_path) as folder:
        build(limits, jobs, allocator=Leaky).execute(folder)
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["state"] == "failed"
    assert status["error"].startswith("InvariantError: INV-blocks")
