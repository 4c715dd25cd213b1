"""`ChunkedScheduler` by hand: the rules of vLLM V1."""

from __future__ import annotations

from kvsim.kv.paged import PagedAllocator
from kvsim.plan import UNBOUNDED
from kvsim.protocols import Admission
from kvsim.request import Sequence
from kvsim.sched.chunked import ChunkedScheduler
from tests.sched.driver import Driver, drive


def chunked(num_blocks: int, jobs: list[tuple[int, int]], budget: int | None = None, seqs: int | None = None) -> Driver:
    """Over blocks of four tokens."""
    pool = PagedAllocator(num_blocks, 4, max_model_len=64)
    return drive(ChunkedScheduler, pool, jobs, max_num_batched_tokens=budget, max_num_seqs=seqs)


class Generous(PagedAllocator):
    """Would let anybody in."""

    def can_admit(self, seq: Sequence) -> Admission:
        return Admission.NOW


class TestBudget:
    def test_it_is_shared_by_decodes_first_and_chunks_then(self) -> None:
        driver = chunked(16, [(5, 3), (10, 2)], budget=8)
        first, second, third = driver.step(), driver.step(), driver.step()
        assert (first.rows, first.samples, first.num_decodes) == ([(0, 5), (1, 3)], [1, 0], 0)
        assert (second.rows, second.samples, second.num_decodes) == ([(0, 1), (1, 7)], [1, 1], 1)
        assert second.contexts == [6, 10]
        assert (third.rows, third.samples, third.num_decodes) == ([(0, 1), (1, 1)], [1, 1], 2)
        assert driver.ended == [0, 1]

    def test_it_is_never_exceeded_nor_charged_twice(self) -> None:
        driver = chunked(64, [(20, 3), (20, 3), (20, 3)], budget=16)
        totals = [sum(tokens for _, tokens in driver.step().rows) for _ in range(4)]
        assert totals == [16, 16, 16, 15], "at last two decodes and 13 of the third prompt"

    def test_a_prompt_longer_than_the_budget_comes_in_chunks(self) -> None:
        driver = chunked(16, [(20, 1)], budget=8)
        steps = [driver.step() for _ in range(3)]
        assert [step.rows for step in steps] == [[(0, 8)], [(0, 8)], [(0, 4)]]
        assert [step.samples for step in steps] == [[0], [0], [1]]
        assert [step.contexts for step in steps] == [[8], [16], [20]]
        assert driver.ended == [0]
        assert driver.scheduler.max_prompt_tokens == UNBOUNDED

    def test_who_gets_nothing_of_it_keeps_his_place(self) -> None:
        driver = chunked(16, [(1, 9), (1, 9), (3, 2)], budget=2)
        driver.step()
        plan = driver.plan()
        assert plan.seq_ids.tolist() == [0, 1]
        assert (plan.num_waiting, plan.starved, plan.max_repeats) == (1, False, 1)

    def test_a_chunk_takes_blocks_for_itself_only(self) -> None:
        driver = chunked(16, [(30, 1)], budget=8)
        driver.step()
        assert driver.allocator.num_free_blocks == 14
        driver.step()
        assert driver.allocator.num_free_blocks == 12

    def test_a_last_chunk_of_one_token_is_no_decode(self) -> None:
        driver = chunked(16, [(9, 3)], budget=8)
        assert [driver.step().num_decodes for _ in range(3)] == [0, 0, 1]

    def test_nor_is_a_prompt_of_one_token(self) -> None:
        assert chunked(16, [(1, 3)]).step().num_decodes == 0


class TestAdmission:
    def test_it_asks_for_all_known_tokens_though_a_chunk_would_fit(self) -> None:
        driver = chunked(4, [(4, 2), (13, 1)], budget=8)
        first = driver.step()
        assert first.rows == [(0, 4)]
        assert (first.waiting, first.starved) == (1, True)
        driver.step()
        assert driver.step().rows == [(1, 8)]

    def test_whoever_is_behind_a_head_that_does_not_fit_waits_too(self) -> None:
        driver = chunked(4, [(4, 2), (13, 1), (1, 1)])
        assert driver.step().rows == [(0, 4)]

    def test_no_more_sequences_than_the_cap(self) -> None:
        driver = chunked(16, [(4, 2), (4, 2), (4, 2)], seqs=2)
        capped = driver.step()
        assert capped.rows == [(0, 4), (1, 4)]
        assert (capped.waiting, capped.starved) == (1, False)
        driver.step()
        assert driver.step().rows == [(2, 4)]

    def test_a_newcomer_joins_the_decodes(self) -> None:
        driver = chunked(16, [(4, 9)])
        driver.step()
        driver.add(6, 2)
        joined = driver.step()
        assert joined.rows == [(0, 1), (1, 6)]
        assert (joined.samples, joined.num_decodes, joined.running) == ([1, 1], 1, 2)


class TestPreemption:
    def test_the_last_running_goes_for_one_before_it(self) -> None:
        driver = chunked(4, [(8, 4), (7, 4)])
        driver.step()
        short = driver.step()
        assert short.rows == [(0, 1)]
        assert short.preempted == [1]
        assert (short.waiting, short.running, short.starved) == (1, 1, True)
        assert driver.rows(3) == [[(0, 1)], [(0, 1)], [(1, 8)]]

    def test_the_last_goes_for_itself(self) -> None:
        driver = chunked(4, [(7, 8), (8, 5)])
        driver.step()
        short = driver.step()
        assert short.rows == [(0, 1)], "the first had room in its last block"
        assert short.preempted == [1]
        assert driver.rows(7)[-2:] == [[(0, 1)], [(1, 9)]]
        assert driver.ended == [0]
        driver.rows(3)
        assert driver.recomputed == {0: 0, 1: 8}

    def test_nobody_is_admitted_in_a_step_that_preempted(self) -> None:
        pool = Generous(4, 4, max_model_len=64)
        driver = drive(ChunkedScheduler, pool, [(8, 4), (7, 4)])
        driver.step()
        short = driver.step()
        assert (short.rows, short.preempted, short.waiting) == ([(0, 1)], [1], 1)

    def test_prompt_and_answer_are_computed_again_in_chunks(self) -> None:
        driver = chunked(4, [(7, 8), (8, 5)], budget=8)
        assert driver.rows(3) == [[(0, 7), (1, 1)], [(0, 1), (1, 7)], [(0, 1)]]
        driver.rows(5)
        first, second = driver.step(), driver.step()
        assert (first.rows, first.samples, first.num_decodes) == ([(1, 8)], [0], 0)
        assert (second.rows, second.samples, second.num_decodes) == ([(1, 1)], [1], 1)
        driver.rows(3)
        assert driver.ended == [0, 1]

    def test_several_go_in_one_step_the_latest_first(self) -> None:
        driver = chunked(6, [(4, 4), (4, 4), (9, 4), (1, 4)])
        driver.step()
        short = driver.step()
        assert short.preempted == [3, 2]
        assert short.rows == [(0, 1), (1, 1)]

    def test_a_preempted_one_is_at_the_head_of_the_queue(self) -> None:
        driver = chunked(4, [(8, 4), (7, 4)])
        driver.step()
        driver.add(1, 1)
        driver.step()
        assert driver.rows(3) == [[(0, 1)], [(0, 1)], [(1, 8), (2, 1)]]

    def test_an_unfinished_prompt_may_be_preempted(self) -> None:
        driver = chunked(6, [(4, 9), (20, 2)], budget=5)
        assert driver.rows(4) == [[(0, 4), (1, 1)], [(0, 1), (1, 4)], [(0, 1), (1, 4)], [(0, 1), (1, 4)]]
        short = driver.step()
        assert (short.rows, short.preempted) == ([(0, 1)], [1])
        assert driver.rows(8)[-4:] == [[(1, 5)]] * 4
        driver.step()
        assert driver.recomputed == {0: 0, 1: 13}

    def test_a_full_pool_is_no_shortage_while_last_blocks_have_room(self) -> None:
        driver = chunked(2, [(2, 3), (2, 3)])
        assert driver.rows(3) == [[(0, 2), (1, 2)], [(0, 1), (1, 1)], [(0, 1), (1, 1)]]
        assert driver.ended == [0, 1]


def test_all_are_let_go() -> None:
    driver = chunked(4, [(4, 2), (13, 1)])
    driver.step()
    assert [seq.seq_id for seq in driver.scheduler.abort_all()] == [0, 1]
    assert driver.allocator.num_free_blocks == 4
    assert driver.scheduler.num_unfinished == 0
