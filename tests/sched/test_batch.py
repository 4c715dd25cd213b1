"""`RunningBatch`: columns ahead of the sequences' own counters."""

from __future__ import annotations

import numpy as np

from kvsim.sched.batch import RunningBatch
from tests.kv.holders import sequence


def batch(*prompts: int) -> RunningBatch:
    made = RunningBatch()
    made.append([sequence(10 + row, prompt) for row, prompt in enumerate(prompts)])
    return made


def test_rows_are_in_the_order_of_admission() -> None:
    running = batch(3, 5)
    running.append([sequence(2, 1)])
    assert running.ids.tolist() == [10, 11, 2]
    assert running.num_computed.tolist() == [0, 0, 0]
    assert [seq.seq_id for seq in running.seqs] == [10, 11, 2]
    assert len(running) == 3


def test_an_empty_batch_is_false() -> None:
    assert not RunningBatch()
    assert batch(1)


def test_who_leaves_takes_his_counters_along_the_others_lag() -> None:
    running = batch(3, 5, 2, 4)
    running.num_computed += np.array([3, 7, 1, 4])
    gone = running.remove([1, 2])
    assert [seq.seq_id for seq in gone] == [11, 12]
    assert [(seq.num_computed_tokens, seq.num_tokens) for seq in gone] == [(7, 8), (1, 2)]
    assert running.ids.tolist() == [10, 13]
    assert running.num_computed.tolist() == [3, 4]
    assert [seq.num_computed_tokens for seq in running.seqs] == [0, 0]


def test_the_token_sampled_last_is_known_but_not_computed() -> None:
    running = batch(3, 3, 3)
    running.num_computed += np.array([2, 3, 4])
    running.sync()
    assert [(seq.num_computed_tokens, seq.num_tokens) for seq in running.seqs] == [(2, 3), (3, 4), (4, 5)]
    running.sync()
    assert [(seq.num_computed_tokens, seq.num_tokens) for seq in running.seqs] == [(2, 3), (3, 4), (4, 5)]


def test_the_last_row_can_be_taken() -> None:
    running = batch(3, 5)
    running.num_computed += np.array([3, 5])
    assert running.pop_last().num_computed_tokens == 5
    assert running.ids.tolist() == [10]


def test_a_plan_may_keep_the_ids() -> None:
    running = batch(3, 5)
    kept = running.ids
    running.append([sequence(2, 1)])
    running.remove([0])
    assert kept.tolist() == [10, 11]


def test_nothing_or_all_can_be_removed() -> None:
    running = batch(3, 5)
    assert running.remove([]) == []
    assert len(running) == 2
    assert len(running.remove([0, 1])) == 2
    assert running.ids.tolist() == running.num_computed.tolist() == []
