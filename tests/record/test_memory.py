"""The memory split by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kvsim.metrics import MEMORY_CLASSES
from kvsim.plan import PoolUsage, StepPlan
from kvsim.record.memory import MemoryLedger
from kvsim.record.steps import StepTable
from tests.record.plans import decodes, plan, usage


def ledger(**final_tokens: int) -> MemoryLedger:
    """Of requests r0, r1 and so on, which will be so long in the end."""
    known = MemoryLedger()
    for name, tokens in final_tokens.items():
        known.expect(int(name.removeprefix("r")), tokens)
    return known


def split(steps: StepPlan, pool: PoolUsage, known: MemoryLedger) -> dict[str, int]:
    """Classes of one step that are not empty; together they are the pool."""
    table = StepTable()
    table.add(steps, 0, np.array([10]), np.array([0]), 0, pool, known.reservations(pool))
    columns = table.expand()
    assert sum(columns[name] for name in MEMORY_CLASSES) == pool.total
    return {name: int(columns[name][0]) for name in MEMORY_CLASSES if columns[name][0]}


class TestPaged:
    def test_unfilled_slots_of_last_blocks_are_internal(self) -> None:
        found = split(decodes(4, 5), usage(64, resident=11, held=16), ledger(r0=9, r1=9))
        assert found == {"token_state": 11, "internal": 5, "free_usable": 48}

    def test_free_slots_are_of_no_use_if_the_head_does_not_fit(self) -> None:
        found = split(decodes(4, 5, starved=True), usage(64, resident=11, held=16), ledger(r0=9, r1=9))
        assert found == {"token_state": 11, "internal": 5, "free_unusable": 48}

    def test_a_chunk_counts_what_is_computed(self) -> None:
        chunk = plan([(0, 8, 8, 0)])
        assert split(chunk, usage(64, resident=16, held=16), ledger(r0=31)) == {"token_state": 16, "free_usable": 48}


class TestReserving:
    def test_the_papers_illustration(self) -> None:
        """Figure 3: of 2,048 slots for a request of 10 tokens, 8 of which are there, 2 wait and 2,038 never serve."""
        pool = usage(2048, resident=8, held=2048, grants={0: 2048})
        assert split(decodes(7), pool, ledger(r0=10)) == {"token_state": 8, "reserved": 2, "internal": 2038}

    def test_a_mixed_pool(self) -> None:
        """18 and 10 tokens were reserved and rounded to 32 and 16; 14 and 12 will be needed, the model allows 10."""
        pool = usage(64, resident=12, held=48, grants={0: 18, 1: 10})
        assert split(decodes(8, 2), pool, ledger(r0=14, r1=12)) == {
            "token_state": 12,
            "reserved": (14 - 9) + (10 - 3),
            "internal": 18 - 14,
            "rounding": 48 - 28,
            "free_usable": 16,
        }

    def test_an_oracle_wastes_nothing_inside(self) -> None:
        pool = usage(64, resident=5, held=16, grants={0: 14})
        found = split(decodes(4, starved=True), pool, ledger(r0=14))
        assert found == {"token_state": 5, "reserved": 9, "rounding": 2, "free_unusable": 48}

    def test_finished_members_of_a_static_batch_are_internal(self) -> None:
        known = ledger(r0=3, r1=8)
        pool = usage(48, resident=2 + 5, held=32, grants={0: 16, 1: 16})
        known.stop(0, stored_tokens=2)
        assert split(decodes(4, first_id=1), pool, known) == {
            "token_state": 5,
            "reserved": 3,
            "internal": 16 + (16 - 8),
            "free_usable": 16,
        }

    def test_an_empty_pool_is_free(self) -> None:
        assert split(plan([]), usage(64, resident=0, held=0), ledger()) == {"free_usable": 64}


class TestLedger:
    def test_who_finished_is_known_at_once_though_no_grant_changed(self) -> None:
        known = ledger(r0=3, r1=8)
        pool = usage(48, resident=7, held=32, grants={0: 16, 1: 16}, version=5)
        assert known.reservations(pool) == (32, 3 + 8, 13 + 8, 0)
        known.stop(0, stored_tokens=2)
        assert known.reservations(pool) == (32, 8, 16 + 8, 2)

    def test_who_left_is_forgotten(self) -> None:
        known = ledger(r0=3, r1=8)
        known.reservations(usage(48, resident=7, held=32, grants={0: 16, 1: 16}, version=1))
        known.stop(0, stored_tokens=2)
        known.forget(0)
        assert known.reservations(usage(48, resident=5, held=16, grants={1: 16}, version=2)) == (16, 8, 8, 0)

    def test_a_new_grant_counts(self) -> None:
        known = ledger(r0=3)
        known.reservations(usage(48, resident=2, held=16, grants={0: 16}, version=1))
        known.expect(1, 8)
        assert known.reservations(usage(48, resident=7, held=32, grants={0: 16, 1: 16}, version=2)).promised == 11

    def test_where_nothing_is_reserved_the_sums_are_zero(self) -> None:
        assert ledger(r0=3).reservations(usage(48, resident=2, held=16)) == (0, 0, 0, 0)

    def test_a_sequence_nobody_announced_is_an_error(self) -> None:
        with pytest.raises(KeyError):
            ledger().forget(4)
