"""`StepTable`: plans in, one row a step out."""

from __future__ import annotations

import numpy as np
import pytest

from kvsim.errors import InvariantError
from kvsim.plan import PHASES, PoolUsage, StepPlan
from kvsim.record.memory import NOTHING_RESERVED, Reservations
from kvsim.record.steps import StepTable
from tests.record.plans import decodes, plan, usage


def add(
    table: StepTable,
    steps: StepPlan,
    pool: PoolUsage,
    *,
    now: int = 0,
    durations: tuple[int, ...] = (10,),
    growth: tuple[int, ...] = (0,),
    reserved: Reservations = NOTHING_RESERVED,
) -> None:
    emitted = int((steps.num_samples > 0).sum())
    table.add(steps, now, np.array(durations), np.array(growth), emitted, pool, reserved)


def expand(table: StepTable, *names: str) -> list[tuple[int, ...]]:
    """Rows of these columns."""
    columns = table.expand()
    return list(zip(*(columns[name].tolist() for name in names), strict=True))


def test_a_plan_carried_out_thrice_is_three_rows() -> None:
    table = StepTable()
    pool = usage(64, resident=13, held=16)
    add(table, decodes(5, 6, num_waiting=4, starved=True), pool, now=100, durations=(10, 20, 30), growth=(0, 4, 8))
    columns = table.expand()
    assert {name: column.tolist() for name, column in columns.items()} == {
        "step": [0, 1, 2],
        "start_ns": [100, 110, 130],
        "duration_ns": [10, 20, 30],
        "num_seqs": [2, 2, 2],
        "num_prefill_tokens": [0, 0, 0],
        "num_decode_seqs": [2, 2, 2],
        "num_emitted": [2, 2, 2],
        "num_waiting": [4, 4, 4],
        "num_running": [2, 2, 2],
        "context_tokens": [13, 15, 17],
        "token_state": [13, 15, 17],
        "internal": [3, 5, 7],
        "free_usable": [0, 0, 0],
        "free_unusable": [48, 44, 40],
        **{name: [0, 0, 0] for name in ("reserved", "rounding", "holes", "swap_in_flight", "cached")},
    }


def test_a_measured_step_tells_its_phases() -> None:
    table = StepTable()
    pool = usage(64, resident=6, held=8)
    for breakdown in ((0, 1, 6, 3), (2, 2, 5, 1)):
        table.add(decodes(5), 0, np.array([10]), np.array([0]), 1, pool, NOTHING_RESERVED, breakdown)
    assert expand(table, *PHASES) == [(0, 1, 6, 3), (2, 2, 5, 1)]


def test_a_predicted_step_has_no_phases() -> None:
    table = StepTable()
    add(table, decodes(5), usage(64, resident=6, held=8))
    assert not set(PHASES) & set(table.expand())


@pytest.mark.parametrize(("first", "second"), [((0, 1, 6, 3), ()), ((), (0, 1, 6, 3))])
@pytest.mark.parametrize("flushed", [False, True])
def test_steps_are_measured_all_or_none(first: tuple[int, ...], second: tuple[int, ...], flushed: bool) -> None:
    table = StepTable()
    pool = usage(64, resident=6, held=8)
    table.add(decodes(5), 0, np.array([10]), np.array([0]), 1, pool, NOTHING_RESERVED, first)
    if flushed:
        table.expand()
    with pytest.raises(InvariantError, match="INV-clock: step 1: .* all or none"):
        table.add(decodes(5, step=1), 10, np.array([10]), np.array([0]), 1, pool, NOTHING_RESERVED, second)


def test_a_measured_step_has_no_repeats() -> None:
    pool = usage(64, resident=6, held=8)
    with pytest.raises(InvariantError, match="INV-clock: step 0: 4 phases for 2 repeats"):
        StepTable().add(decodes(5), 0, np.array([10, 10]), np.array([0, 0]), 1, pool, NOTHING_RESERVED, (0, 1, 6, 3))


def test_a_reservation_is_used_up_by_repeats() -> None:
    table = StepTable()
    pool = usage(64, resident=6, held=32, grants={0: 20})
    reserved = Reservations(granted=20, promised=14, internal=6, dead_tokens=0)
    add(table, decodes(5), pool, durations=(10,) * 3, growth=(0, 0, 0), reserved=reserved)
    rows = expand(table, "token_state", "reserved", "internal", "rounding", "free_usable")
    assert rows == [(6, 8, 6, 12, 32), (7, 7, 6, 12, 32), (8, 6, 6, 12, 32)]


def test_plans_follow_one_another_through_gaps_and_flushes() -> None:
    table = StepTable()
    add(table, plan([(0, 0, 5, 1), (1, 0, 3, 0)]), usage(64, resident=8, held=12))
    add(table, decodes(5, num_running=2), usage(64, resident=9, held=12), now=10, durations=(7, 7), growth=(0, 0))
    assert len(table) == 2
    names = ("step", "start_ns", "num_seqs", "num_prefill_tokens", "num_decode_seqs", "num_emitted")
    assert expand(table, *names) == [(0, 0, 2, 8, 0, 1), (1, 10, 1, 0, 1, 1), (2, 17, 1, 0, 1, 1)]
    assert len(table) == 0
    add(table, decodes(7), usage(64, resident=8, held=8), now=500)
    assert expand(table, "step", "start_ns") == [(3, 500)]


def test_a_mixed_batch_splits_into_prefill_tokens_and_decodes() -> None:
    table = StepTable()
    add(table, plan([(0, 9, 1, 1), (1, 4, 4, 0), (2, 0, 6, 1)]), usage(64, resident=24, held=32))
    names = ("num_seqs", "num_prefill_tokens", "num_decode_seqs", "context_tokens", "num_emitted")
    assert expand(table, *names) == [(3, 10, 1, 24, 2)]


@pytest.mark.parametrize("resident", [12, 14])
def test_tokens_seen_are_the_tokens_stored(resident: int) -> None:
    table = StepTable()
    add(table, decodes(3), usage(64, resident=4, held=4))
    add(table, decodes(5, 6), usage(64, resident=resident, held=16), now=10, durations=(10, 10), growth=(0, 0))
    match = f"INV-tokens: step 1: 13 tokens are visible to the batch, {resident} are stored"
    with pytest.raises(InvariantError, match=match):
        table.expand()


def test_a_batch_in_part_sees_part_of_what_is_stored() -> None:
    table = StepTable()
    add(table, decodes(5, 6, num_running=3), usage(64, resident=20, held=24))
    assert expand(table, "context_tokens", "token_state") == [(13, 20)]
