"""Executors: how long, how often, and whether memory is what the tables say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.errors import ConfigError, InvariantError
from kvsim.executor import MemoryCheckExecutor, ReplayExecutor, SimExecutor
from kvsim.kv.paged import PagedAllocator
from kvsim.plan import BlockTable, IntArray, StepPlan
from kvsim.protocols import Executor
from kvsim.request import Sequence
from kvsim.workload.outcomes import Outcomes
from tests.harness import build, execute, setup, write
from tests.record.plans import decodes, plan
from tests.reference.records import Job


class Growing:
    """A step lasts as long as its context says, so longer with every repeat."""

    def __init__(self, base: int, slope: int) -> None:
        self.base, self.slope = base, slope

    def decode_run(self, plan: StepPlan, repeats: int) -> IntArray:
        context = plan.context_tokens + len(plan.seq_ids) * np.arange(repeats)
        return self.base + self.slope * context


def outcomes(*outputs: int) -> Outcomes:
    """Of requests 0, 1 and so on."""
    known = Outcomes()
    for request_id, length in enumerate(outputs):
        known.add(request_id, length)
    return known


def naive(durations: Iterable[int], max_repeats: int, now: int, until: int) -> list[int]:
    """Steps one after another as long as they start in time; the first always does."""
    carried: list[int] = []
    for duration in durations:
        if carried and (len(carried) == max_repeats or now >= until):
            break
        carried.append(duration)
        now += duration
    return carried


@st.composite
def spans(draw: st.DrawFn) -> tuple[int, int]:
    """An instant and the next one at which something happens."""
    now = draw(st.integers(0, 10_000))
    return now, now + draw(st.integers(1, 5_000) | st.just(1 << 61))


class TestSimExecutor:
    @given(
        base=st.integers(1, 50),
        slope=st.integers(0, 9),
        calls=st.lists(st.tuples(st.integers(1, 60), spans()), min_size=1, max_size=4),
    )
    def test_as_many_steps_as_start_in_time(self, base: int, slope: int, calls: list[tuple[int, Any]]) -> None:
        cost, known = Growing(base, slope), outcomes(10_000, 10_000)
        executor = SimExecutor(cost, known)
        for max_repeats, (now, until) in calls:
            steps = decodes(5, 17)
            before = known.steps_to_finish(steps)
            carried = executor.execute(steps, now, max_repeats, until)
            singly = [base + slope * (5 + 17 + 2 + 2 * nth) for nth in range(max_repeats)]
            assert carried.durations.tolist() == naive(singly, max_repeats, now, until)
            assert before - known.steps_to_finish(steps) == len(carried.durations)

    def test_a_step_that_would_start_at_that_instant_does_not(self) -> None:
        executor = SimExecutor(Growing(10, 0), outcomes(100))
        assert len(executor.execute(decodes(1), 0, 50, 30).durations) == 3
        assert len(executor.execute(decodes(1), 0, 50, 31).durations) == 4
        assert len(executor.execute(decodes(1), 7, 50, 7).durations) == 1, "one step is always carried out"

    def test_rows_stop_with_their_last_token(self) -> None:
        executor = SimExecutor(Growing(10, 0), outcomes(3, 2, 3))
        assert executor.execute(plan([(0, 0, 4, 1), (1, 0, 4, 0), (2, 0, 4, 1)]), 0, 1, 1000).stopped.tolist() == []
        assert executor.execute(decodes(4, 4, 4), 0, 2, 1000).stopped.tolist() == [0, 1, 2]


class TestMemoryCheckExecutor:
    @pytest.fixture
    def check(self) -> Callable[[StepPlan], int]:
        """Carries a plan out over eight blocks of four; returns the steps it took."""
        executor = MemoryCheckExecutor(Growing(10, 0), outcomes(*[99] * 4), num_slots=32, block_size=4)
        return lambda steps: len(executor.execute(steps, 0, 9, 10**9).durations)

    def test_it_steps_one_by_one_and_lets_good_plans_pass(self, check: Callable[[StepPlan], int]) -> None:
        tables = {0: [5, 2], 1: [7]}
        assert check(plan([(0, 0, 6, 1), (1, 0, 2, 0)], tables)) == 1
        assert check(plan([(0, 6, 1, 1), (1, 2, 2, 1)], tables)) == 1
        tables[1].append(0)
        assert check(plan([(0, 7, 1, 1), (1, 4, 1, 1)], tables)) == 1

    def test_two_tables_that_share_a_block(self, check: Callable[[StepPlan], int]) -> None:
        with pytest.raises(
            InvariantError, match="INV-blocks: step 0: token 4 of sequence 0 in slot 8 .* of sequence 1"
        ):
            check(plan([(0, 0, 6, 1), (1, 0, 3, 1)], {0: [0, 2], 1: [2]}))

    def test_sharing_shows_however_late_it_is_read(self, check: Callable[[StepPlan], int]) -> None:
        check(plan([(0, 0, 4, 1)], {0: [3]}))
        check(plan([(1, 0, 2, 1)], {1: [3]}))
        with pytest.raises(InvariantError, match="token 0 of sequence 0 in slot 12 reads as token 0 of sequence 1"):
            check(plan([(0, 4, 1, 1)], {0: [3, 4]}, step=2))

    def test_a_table_too_short(self, check: Callable[[StepPlan], int]) -> None:
        with pytest.raises(InvariantError, match="INV-blocks: step 3: sequence 1 needs 5 slots, its table has 4"):
            check(plan([(1, 0, 5, 1)], {1: [2]}, step=3))

    def test_an_early_block_swapped_for_another(self, check: Callable[[StepPlan], int]) -> None:
        table = [1, 2, 3]
        check(plan([(0, 0, 9, 1)], {0: table}))
        table[0] = 6
        with pytest.raises(InvariantError, match="token 0 of sequence 0 in slot 24 reads as token -1 of sequence -1"):
            check(plan([(0, 9, 1, 1)], {0: table}))

    def test_blocks_of_one_table_in_another_order(self, check: Callable[[StepPlan], int]) -> None:
        table = [1, 2, 3]
        check(plan([(0, 0, 9, 1)], {0: table}))
        table[:2] = [2, 1]
        with pytest.raises(InvariantError, match="token 0 of sequence 0 in slot 8 reads as token 4 of sequence 0"):
            check(plan([(0, 9, 1, 1)], {0: table}))

    def test_a_token_left_out(self, check: Callable[[StepPlan], int]) -> None:
        tables: dict[int, BlockTable] = {0: [1, 2]}
        check(plan([(0, 0, 3, 1)], tables))
        with pytest.raises(InvariantError, match="token 3 of sequence 0 in slot 7 reads as token -1"):
            check(plan([(0, 4, 1, 1)], tables))

    def test_a_prompt_that_is_not_computed_again_after_a_preemption(self, check: Callable[[StepPlan], int]) -> None:
        check(plan([(0, 0, 4, 1)], {0: [1]}))
        check(plan([(1, 0, 4, 1)], {1: [1]}))
        check(plan([(0, 0, 5, 1)], {0: [4, 5]}))
        with pytest.raises(InvariantError, match="of sequence 1 in slot 16 reads as token 0 of sequence 0"):
            check(plan([(1, 4, 1, 1)], {1: [4, 6]}))

    @pytest.mark.parametrize("block", [8, -1])
    def test_a_block_outside_the_pool(self, check: Callable[[StepPlan], int], block: int) -> None:
        with pytest.raises(InvariantError, match="INV-blocks"):
            check(plan([(0, 0, 4, 1)], {0: [block]}))


class FreesForAnother(PagedAllocator):
    """Gives back a block of a living sequence instead of one of the sequence that ends."""

    def free(self, seq: Sequence) -> None:
        for seq_id, table in self.tables.items():
            if seq_id != seq.seq_id:
                self.tables[seq.seq_id][0] = table[0]
        super().free(seq)


class LosesOnPreemption(PagedAllocator):
    """Forgets the last block of a sequence that it takes memory from before its end."""

    def free(self, seq: Sequence) -> None:
        if seq.num_preemptions == 0 and seq.num_computed_tokens < 7:
            self.tables[seq.seq_id].pop()
        super().free(seq)


class TestFaultyAllocators:
    SETUP = setup("vllm_v1", num_blocks=4, block_size=4, max_model_len=16)
    JOBS = (Job(0, 4, 9), Job(0, 4, 2), Job(2000, 4, 4))

    def test_the_right_one_passes(self) -> None:
        assert execute(build(self.SETUP, self.JOBS, check_memory=True)).finished() == [0, 1, 2]

    def test_a_freed_block_whose_owner_lives_is_seen_when_it_is_written(self) -> None:
        with pytest.raises(InvariantError, match="INV-blocks: step .*token 0 of sequence 0 .* of sequence 2"):
            execute(build(self.SETUP, self.JOBS, allocator=FreesForAnother, check_memory=True))

    def test_without_a_look_at_the_memory_the_books_still_show_it(self) -> None:
        with pytest.raises(InvariantError, match=r"INV-blocks: block \d is owned by .* free \d times"):
            execute(build(self.SETUP, self.JOBS, allocator=FreesForAnother))

    def test_a_block_lost_on_preemption_is_missing_in_the_books(self) -> None:
        jobs = [Job(0, 8, 4), Job(0, 5, 4)]
        good = execute(build(self.SETUP, jobs))
        assert any(step.preempted for step in good.steps)
        with pytest.raises(InvariantError, match=r"INV-blocks: block \d is owned by sequences \[\] and free 0 times"):
            execute(build(self.SETUP, jobs, allocator=LosesOnPreemption))


class TestReplayExecutor:
    SETUP = setup("vllm_v1", num_blocks=12)
    JOBS = tuple(Job(1500 * row, 5 + row, 9 + 3 * row) for row in range(5))

    @staticmethod
    def replaying(path: Path) -> Callable[[object, Outcomes], Executor]:
        return lambda cost, known: ReplayExecutor.from_run(path, known)

    def test_a_run_replayed_is_the_same_run(self, tmp_path: Path) -> None:
        recorded = write(build(self.SETUP, self.JOBS), tmp_path / "recorded")
        for fast_forward in (True, False):
            again = build(
                self.SETUP, self.JOBS, executor=self.replaying(tmp_path / "recorded"), fast_forward=fast_forward
            )
            assert write(again, tmp_path / f"again-{fast_forward}") == recorded

    @given(
        durations=st.lists(st.integers(1, 500), min_size=1, max_size=40),
        at=st.integers(0, 39),
        max_repeats=st.integers(1, 60),
        span=spans(),
    )
    def test_recorded_steps_that_start_in_time(
        self, durations: list[int], at: int, max_repeats: int, span: tuple[int, int]
    ) -> None:
        at %= len(durations)
        executor = ReplayExecutor(np.array(durations), outcomes(10_000))
        carried = executor.execute(decodes(5, step=at), span[0], max_repeats, span[1]).durations
        assert carried.tolist() == naive(durations[at:], max_repeats, *span)

    def test_another_longer_run_is_refused(self) -> None:
        executor = ReplayExecutor(np.array([10, 10]), outcomes(99))
        executor.execute(decodes(5, step=1), 0, 1, 1000)
        with pytest.raises(ConfigError, match="step 2 is beyond the 2 recorded ones; replay the same run") as error:
            executor.execute(decodes(5, step=2), 0, 1, 1000)
        assert "\n" not in str(error.value)

    def test_a_folder_without_a_run_is_refused(self, tmp_path: Path) -> None:
        for folder in (tmp_path, tmp_path / "none"):
            with pytest.raises(ConfigError, match="executor.path=.*name a run folder") as error:
                ReplayExecutor.from_run(folder, outcomes(1))
            assert "\n" not in str(error.value)

    def test_a_file_that_is_no_table_of_steps_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "steps.parquet").write_bytes(b"no parquet")
        with pytest.raises(ConfigError, match="no readable steps.parquet"):
            ReplayExecutor.from_run(tmp_path, outcomes(1))
        write(build(self.SETUP, self.JOBS), tmp_path / "run")
        (tmp_path / "run" / "memory.parquet").rename(tmp_path / "steps.parquet")
        with pytest.raises(ConfigError, match="no readable steps.parquet"):
            ReplayExecutor.from_run(tmp_path, outcomes(1))
