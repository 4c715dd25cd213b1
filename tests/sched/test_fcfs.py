"""`FCFSScheduler` by hand: prompts in the decodes' batch (SOSP'23) and prompts first (vLLM v0)."""

from __future__ import annotations

from functools import partial

import pytest

from kvsim.kv.contiguous import ReserveMax
from kvsim.kv.paged import PagedAllocator
from kvsim.plan import UNBOUNDED
from kvsim.sched.fcfs import FCFSScheduler
from tests.sched.driver import Driver, drive

MIXED = partial(FCFSScheduler, prefill_first=False)
PREFILL_FIRST = partial(FCFSScheduler, prefill_first=True)
BOTH = pytest.mark.parametrize("scheduler", [MIXED, PREFILL_FIRST])


def pool(num_blocks: int, watermark: float = 0.0) -> PagedAllocator:
    """Blocks of four tokens."""
    return PagedAllocator(num_blocks, 4, max_model_len=64, watermark=watermark)


class TestPreemption:
    @pytest.fixture
    def driver(self) -> Driver:
        """Two of two blocks each in the end, and four blocks: the latter is preempted twice."""
        return drive(MIXED, pool(4), [(4, 5), (4, 5)])

    def test_the_last_goes_when_no_block_is_free_though_nobody_needs_one(self, driver: Driver) -> None:
        assert driver.rows(2) == [[(0, 4), (1, 4)], [(0, 1), (1, 1)]]
        full = driver.step()
        assert full.rows == [(0, 1)]
        assert full.preempted == [1]
        assert (full.waiting, full.running, full.starved) == (1, 1, True)

    def test_nobody_is_admitted_in_a_step_that_preempted_then_all_is_computed_again(self, driver: Driver) -> None:
        driver.rows(3)
        again = driver.step()
        assert again.rows == [(0, 1), (1, 6)]
        assert again.contexts == [7, 6]
        assert again.samples == [1, 1]
        assert again.num_decodes == 1
        assert (again.waiting, again.starved) == (0, False)

    def test_to_the_end(self, driver: Driver) -> None:
        rows = driver.rows(7)
        assert rows[4:] == [[(0, 1)], [(1, 7)], [(1, 1)]]
        assert driver.ended == [0, 1]
        assert driver.recomputed == {0: 0, 1: 5 + 6}
        assert driver.scheduler.num_unfinished == 0
        assert driver.allocator.num_free_blocks == 4

    def test_the_plan_says_whose_memory_was_given_back_since_the_one_before(self, driver: Driver) -> None:
        released = []
        for _ in range(7):
            plan = driver.plan()
            released.append(plan.released)
            driver.finish(plan)
        assert released == [(), (), (1,), (), (1,), (0,), ()]
        assert driver.plan().released == (1,)

    def test_a_preempted_sequence_goes_before_those_who_came_later(self, driver: Driver) -> None:
        driver.rows(2)
        driver.add(1, 1)
        assert driver.step().preempted == [1]
        assert driver.step().rows == [(0, 1), (1, 6)]

    def test_several_may_go_in_one_step_the_latest_first(self) -> None:
        driver = drive(MIXED, pool(3), [(4, 9), (1, 9), (1, 9)])
        driver.step()
        short = driver.step()
        assert short.preempted == [2, 1]
        assert short.rows == [(0, 1)], "the third freed a block and the first took it; the second saw none"

    @BOTH
    def test_a_lone_sequence_is_asked_for_its_real_need_only(self, scheduler: object) -> None:
        driver = drive(scheduler, pool(2), [(5, 4)])
        assert driver.rows(4) == [[(0, 5)], [(0, 1)], [(0, 1)], [(0, 1)]]
        assert driver.ended == [0]


class TestPrefillFirst:
    def test_prompts_run_alone_while_the_decodes_wait(self) -> None:
        driver = drive(PREFILL_FIRST, pool(16), [(4, 3), (6, 4)])
        assert driver.step().rows == [(0, 4), (1, 6)]
        driver.add(5, 2)
        prompt = driver.step()
        assert prompt.rows == [(2, 5)]
        assert (prompt.contexts, prompt.num_decodes, prompt.running) == ([5], 0, 3)
        decodes = driver.step()
        assert decodes.rows == [(0, 1), (1, 1), (2, 1)]
        assert (decodes.contexts, decodes.num_decodes) == ([5, 7, 6], 3)
        assert driver.rows(2) == [[(0, 1), (1, 1)], [(1, 1)]]
        assert driver.ended == [2, 0, 1]

    def test_a_prompt_that_is_all_there_is_to_its_answer_ends_from_the_middle_of_the_batch(self) -> None:
        driver = drive(PREFILL_FIRST, pool(16), [(4, 3)])
        driver.step()
        driver.add(3, 1)
        driver.add(5, 2)
        assert driver.step().rows == [(1, 3), (2, 5)]
        assert driver.ended == [1]
        assert driver.step().contexts == [5, 6]

    def test_the_budget_is_the_prompts_alone(self) -> None:
        driver = drive(PREFILL_FIRST, pool(16), [(2, 5), (5, 5)], max_num_batched_tokens=5)
        assert driver.rows(3) == [[(0, 2)], [(1, 5)], [(0, 1), (1, 1)]]

    def test_the_watermark_holds_back_admission_only(self) -> None:
        driver = drive(PREFILL_FIRST, pool(10, watermark=0.2), [(16, 20), (20, 1)])
        first = driver.step()
        assert first.rows == [(0, 16)]
        assert first.starved
        driver.rows(19)
        assert driver.ended == [0]
        assert driver.step().rows == [(1, 20)]


class TestMixed:
    def test_decodes_count_against_the_budget(self) -> None:
        driver = drive(MIXED, pool(16), [(2, 5), (5, 5), (4, 5)], max_num_batched_tokens=6)
        assert driver.rows(4) == [[(0, 2)], [(0, 1), (1, 5)], [(0, 1), (1, 1), (2, 4)], [(0, 1), (1, 1), (2, 1)]]

    def test_decodes_come_before_the_prompts(self) -> None:
        driver = drive(MIXED, pool(16), [(3, 5)])
        driver.step()
        driver.add(2, 1)
        joined = driver.step()
        assert joined.rows == [(0, 1), (1, 2)]
        assert joined.num_decodes == 1
        assert driver.ended == [1]

    def test_a_prompt_of_one_token_is_no_decode(self) -> None:
        assert drive(MIXED, pool(4), [(1, 5)]).step().num_decodes == 0


class TestQueue:
    @BOTH
    def test_whoever_is_behind_a_head_that_does_not_fit_waits_too(self, scheduler: object) -> None:
        driver = drive(scheduler, pool(4), [(9, 2), (8, 1), (1, 1)])
        blocked = driver.step()
        assert blocked.rows == [(0, 9)]
        assert (blocked.waiting, blocked.starved) == (2, True)
        assert driver.rows(2) == [[(0, 1)], [(1, 8), (2, 1)]]

    @BOTH
    def test_the_cap_on_sequences_is_not_hunger(self, scheduler: object) -> None:
        driver = drive(scheduler, pool(16), [(4, 9), (4, 9), (4, 9)], max_num_seqs=2)
        assert driver.step().rows == [(0, 4), (1, 4)]
        plan = driver.plan()
        assert (plan.num_waiting, plan.starved) == (1, False)
        assert plan.max_repeats == 1, "a place may become free"

    @BOTH
    def test_the_budget_is_not_hunger(self, scheduler: object) -> None:
        driver = drive(scheduler, pool(16), [(6, 9), (5, 9)], max_num_batched_tokens=10)
        first = driver.step()
        assert (first.rows, first.waiting, first.starved) == ([(0, 6)], 1, False)

    @BOTH
    def test_nothing_to_do_is_a_plan_without_rows(self, scheduler: object) -> None:
        plan = drive(scheduler, pool(4)).plan()
        assert list(plan.rows()) == []
        assert (plan.total_tokens, plan.context_tokens, plan.num_waiting, plan.num_running) == (0, 0, 0, 0)

    @BOTH
    def test_the_longest_prompt_is_the_budget(self, scheduler: object) -> None:
        assert drive(scheduler, pool(4), max_num_batched_tokens=77).scheduler.max_prompt_tokens == 77
        assert drive(scheduler, pool(4)).scheduler.max_prompt_tokens == UNBOUNDED


class TestReserving:
    def test_nobody_is_ever_short_and_a_place_is_taken_at_the_next_step(self) -> None:
        driver = drive(MIXED, ReserveMax(8, 4, max_model_len=16), [(3, 2), (3, 14), (3, 4)])
        assert driver.rows(3) == [[(0, 3), (1, 3)], [(0, 1), (1, 1)], [(1, 1), (2, 3)]]
        assert driver.plan().max_repeats == UNBOUNDED

    def test_max_batch_in_the_papers_pool_is_seven(self) -> None:
        driver = drive(MIXED, ReserveMax(983, 16, max_model_len=2048), [(161, 338)] * 9)
        saturated = driver.step()
        assert (saturated.running, saturated.waiting, saturated.starved) == (7, 2, True)
