"""`StaticScheduler` by hand: one batch to its last end, then the next."""

from __future__ import annotations

from kvsim.kv.contiguous import ReserveMax
from kvsim.sched.static import StaticScheduler
from tests.sched.driver import drive


def pool(places: int) -> ReserveMax:
    """Room for so many sequences of up to 16 tokens, four blocks each."""
    return ReserveMax(4 * places, 4, max_model_len=16)


def test_members_that_finish_early_idle_keep_their_memory_and_are_delivered_with_the_batch() -> None:
    driver = drive(StaticScheduler, pool(3), [(2, 1), (5, 3), (3, 2), (4, 1)])
    prompts = driver.step()
    assert prompts.rows == [(0, 2), (1, 5), (2, 3)]
    assert (prompts.padding, prompts.idle, prompts.starved) == (3 * 5 - 10, 0, True)
    assert driver.ended == []
    second = driver.step()
    assert second.rows == [(1, 1), (2, 1)]
    assert (second.contexts, second.num_decodes, second.running, second.idle, second.padding) == ([6, 4], 2, 2, 1, 0)
    third = driver.step()
    assert (third.rows, third.idle) == ([(1, 1)], 2)
    assert driver.ended == [0, 1, 2]
    assert driver.allocator.num_free_blocks == 12
    assert driver.step().rows == [(3, 4)]
    assert driver.ended == [0, 1, 2, 3]


def test_memory_is_held_until_the_batch_ends() -> None:
    driver = drive(StaticScheduler, pool(3), [(2, 1), (5, 3)])
    driver.rows(2)
    assert driver.allocator.num_free_blocks == 4
    assert driver.scheduler.num_unfinished == 2
    driver.step()
    assert driver.allocator.num_free_blocks == 12
    assert driver.scheduler.num_unfinished == 0


def test_nobody_joins_a_running_batch_though_there_is_room() -> None:
    driver = drive(StaticScheduler, pool(3), [(2, 3)])
    driver.step()
    driver.add(3, 1)
    plan = driver.plan()
    assert plan.seq_ids.tolist() == [0]
    assert (plan.num_waiting, plan.starved) == (1, False)
    assert plan.max_repeats > 1, "the decision holds until the batch ends"
    driver.finish(plan)
    assert driver.rows(2) == [[(0, 1)], [(1, 3)]]


def test_a_batch_is_no_larger_than_its_padded_prompts_may_be() -> None:
    driver = drive(StaticScheduler, pool(3), [(2, 1), (6, 1), (3, 1)], max_num_batched_tokens=12)
    assert driver.step().rows == [(0, 2), (1, 6)]
    assert driver.step().rows == [(2, 3)]


def test_a_batch_is_no_larger_than_the_cap() -> None:
    driver = drive(StaticScheduler, pool(3), [(2, 1)] * 3, max_num_seqs=2)
    assert driver.rows(2) == [[(0, 2), (1, 2)], [(2, 2)]]


def test_all_are_let_go_whether_they_decode_idle_or_wait() -> None:
    driver = drive(StaticScheduler, pool(2), [(2, 1), (5, 3), (3, 2)])
    driver.rows(2)
    gone = driver.scheduler.abort_all()
    assert sorted(seq.seq_id for seq in gone) == [0, 1, 2]
    assert driver.allocator.num_free_blocks == 8
    assert driver.scheduler.num_unfinished == 0
