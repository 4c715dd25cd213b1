"""`RequestTable`: when tokens came, who stalled, how each ended."""

from __future__ import annotations

import pytest

from kvsim.record.requests import STATUS, RequestTable
from kvsim.request import Request, Sequence, Status
from tests.record.plans import decodes, plan


def request(request_id: int, arrival: int = 0, prompt: int = 4) -> Request:
    return Request(request_id, arrival, prompt)


def ended(request_id: int, preemptions: int = 0, recomputed: int = 0) -> Sequence:
    seq = Sequence(request_id, request(request_id))
    seq.num_preemptions, seq.num_recomputed_tokens = preemptions, recomputed
    return seq


@pytest.fixture
def table() -> RequestTable:
    """Three requests that arrived at 0, 1 and 2 ns."""
    made = RequestTable()
    for request_id in range(3):
        made.arrive(request(request_id, arrival=request_id), 5, num_waiting=request_id + 1)
    return made


def stalls(table: RequestTable) -> list[tuple[int, int, int]]:
    found = table.stalls(table.columns())
    return list(zip(found.row.tolist(), found.from_step.tolist(), found.to_step.tolist(), strict=True))


def test_first_and_last_tokens(table: RequestTable) -> None:
    assert table.emit(plan([(0, 0, 4, 1), (1, 0, 2, 0)]), 1, first_end_ns=10) == 1
    assert table.emit(plan([(0, 4, 1, 1), (1, 2, 2, 1)], step=1), 1, first_end_ns=20) == 2
    assert table.emit(decodes(5, 4, step=2), 3, first_end_ns=30) == 2
    table.end(ended(0), Status.COMPLETED, 50)
    assert table.emit(decodes(7, first_id=1, step=5), 1, first_end_ns=60) == 1
    table.end(ended(1), Status.COMPLETED, 60)
    columns = table.columns()
    assert columns.first_step.tolist() == [0, 1, -1]
    assert columns.last_step.tolist() == [4, 5, -1]
    assert columns.first_token_ns.tolist() == [10, 20, -1]
    assert columns.finished_ns.tolist() == [50, 60, -1]
    assert stalls(table) == []


def test_a_first_token_after_others_have_come(table: RequestTable) -> None:
    table.emit(plan([(0, 0, 4, 1)]), 1, first_end_ns=10)
    table.emit(plan([(1, 0, 4, 1)], step=1), 1, first_end_ns=20)
    columns = table.columns()
    assert columns.first_step.tolist() == columns.last_step.tolist() == [0, 1, -1]


def test_a_preempted_request_stalls_and_keeps_its_first_token(table: RequestTable) -> None:
    table.emit(plan([(0, 0, 4, 1), (1, 0, 4, 1)]), 1, first_end_ns=10)
    table.emit(decodes(4, 4, step=1), 2, first_end_ns=20)
    table.emit(decodes(6, step=3), 3, first_end_ns=40)
    table.emit(plan([(0, 9, 1, 1), (1, 0, 7, 1)], step=6), 1, first_end_ns=70)
    table.emit(decodes(10, 7, step=7), 1, first_end_ns=80)
    assert stalls(table) == [(1, 2, 6)]
    columns = table.columns()
    assert columns.first_token_ns.tolist() == [10, 10, -1]
    assert columns.last_step.tolist() == [7, 7, -1]


def test_decodes_stall_while_a_prompt_runs_alone(table: RequestTable) -> None:
    table.emit(plan([(0, 0, 4, 1), (1, 0, 4, 1)]), 1, first_end_ns=10)
    table.emit(plan([(2, 0, 4, 1)], step=1), 1, first_end_ns=20)
    table.emit(decodes(4, 4, 4, step=2), 1, first_end_ns=30)
    assert stalls(table) == [(0, 0, 2), (1, 0, 2)]


def test_nobody_stalls_while_a_chunk_of_another_runs_along(table: RequestTable) -> None:
    table.emit(plan([(0, 0, 4, 1)]), 1, first_end_ns=10)
    for step in (1, 2, 3):
        table.emit(plan([(0, 3 + step, 1, 1), (1, 4 * step - 4, 4, 0)], step=step), 1, first_end_ns=10 * step + 10)
    assert stalls(table) == []
    assert table.columns().last_step.tolist() == [3, -1, -1]


def test_a_step_in_which_nobody_emits_is_a_stall(table: RequestTable) -> None:
    table.emit(plan([(0, 0, 4, 1)]), 1, first_end_ns=10)
    assert table.emit(plan([(1, 0, 4, 0)], step=1, num_running=2), 1, first_end_ns=20) == 0
    table.emit(decodes(4, step=2), 1, first_end_ns=30)
    assert stalls(table) == [(0, 0, 2)]


def test_rows_of_stalls_are_by_request_id_though_ids_have_gaps() -> None:
    table = RequestTable()
    for request_id in (40, 7):
        table.arrive(request(request_id), 5, num_waiting=1)
    table.emit(plan([(40, 0, 4, 1)]), 1, first_end_ns=10)
    table.emit(plan([(7, 0, 4, 1)], step=1), 1, first_end_ns=20)
    table.emit(decodes(4, first_id=40, step=2), 1, first_end_ns=30)
    assert table.columns().request_id.tolist() == [7, 40]
    assert stalls(table) == [(1, 0, 2)]


def test_how_each_ended(table: RequestTable) -> None:
    table.arrive(request(3, arrival=5), 5, num_waiting=1)
    table.reject(request(4, arrival=6, prompt=99), 7, "too long")
    table.end(ended(0, preemptions=2, recomputed=31), Status.COMPLETED, 70)
    table.end(ended(1, preemptions=1, recomputed=4), Status.UNFINISHED, 80)
    table.end(ended(2), Status.FAILED, 80)
    table.end(ended(3), Status.UNFINISHED, 80)
    columns = table.columns()
    order = [Status.COMPLETED, Status.UNFINISHED, Status.FAILED, Status.UNFINISHED, Status.REJECTED]
    assert columns.state.tolist() == [STATUS[status] for status in order]
    assert columns.finished_ns.tolist() == [70, -1, -1, -1, -1]
    assert columns.num_preemptions.tolist() == [2, 1, 0, 0, 0]
    assert columns.recomputed_tokens.tolist() == [31, 4, 0, 0, 0]
    assert columns.num_prompt_tokens.tolist() == [4, 4, 4, 4, 99]
    assert columns.num_output_tokens.tolist() == [5, 5, 5, 5, 7]
    assert table.reasons(columns.request_id) == [None, None, None, None, "too long"]


def test_the_queue_knows_those_who_were_taken_in_order_of_arrival() -> None:
    table = RequestTable()
    table.arrive(request(5, arrival=10), 3, num_waiting=1)
    table.reject(request(2, arrival=10), 3, "too long")
    table.arrive(request(9, arrival=30), 3, num_waiting=2)
    arrival, waiting = table.queue()
    assert (arrival.tolist(), waiting.tolist()) == ([10, 30], [1, 2])
    assert table.columns().arrival_ns.tolist() == [10, 10, 30]


def test_ids_far_beyond_the_first_thousand() -> None:
    table = RequestTable()
    for request_id in (3, 5000):
        table.arrive(request(request_id), 5, num_waiting=1)
        table.emit(plan([(request_id, 0, 4, 1)], step=request_id), 1, first_end_ns=request_id)
    columns = table.columns()
    assert columns.first_token_ns.tolist() == [3, 5000]
    assert columns.first_step.tolist() == [3, 5000]
