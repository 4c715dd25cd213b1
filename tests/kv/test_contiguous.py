"""The three reserving rules over a buddy pool (the Orca variants of the vLLM paper)."""

from __future__ import annotations

import numpy as np
import pytest

from kvsim.errors import InvariantError
from kvsim.kv.contiguous import ContiguousAllocator, ReserveMax, ReserveOracle, ReservePow2, next_power_of_two
from kvsim.kv.paged import PagedAllocator
from kvsim.plan import UNBOUNDED
from kvsim.protocols import Admission
from kvsim.request import Request
from tests.kv.holders import hold, holder, sequence


class Lengths:
    """An oracle: every request generates what it was made with."""

    def __init__(self, default: int, **of: int) -> None:
        self._default = default
        self._of = {int(name.removeprefix("r")): length for name, length in of.items()}

    def num_output_tokens(self, request_id: int) -> int:
        return self._of.get(request_id, self._default)


def pow2(output: int, num_blocks: int = 983) -> ReservePow2:
    return ReservePow2(num_blocks, 16, max_model_len=2048, oracle=Lengths(output))


@pytest.mark.parametrize(("value", "power"), [(1, 1), (2, 2), (3, 4), (25, 32), (32, 32), (33, 64), (1025, 2048)])
def test_next_power_of_two(value: int, power: int) -> None:
    assert next_power_of_two(value) == power


class TestRules:
    @pytest.mark.parametrize(("output", "estimate"), [(1, 1), (2, 2), (3, 4), (25, 32), (32, 32), (33, 64)])
    def test_pow2_rounds_the_output_up_and_takes_the_prompt_as_it_is(self, output: int, estimate: int) -> None:
        assert pow2(output).reservation(Request(0, 0, 100)) == 100 + estimate

    def test_pow2_stays_within_the_model(self) -> None:
        assert pow2(100).reservation(Request(0, 0, 2000)) == min(2000 + 128, 2048) == 2048

    def test_oracle_reserves_the_exact_length_of_each(self) -> None:
        rule = ReserveOracle(983, 16, max_model_len=2048, oracle=Lengths(100, r7=3))
        assert rule.reservation(Request(0, 0, 11)) == 111
        assert rule.reservation(Request(7, 0, 11)) == 14
        assert rule.reservation(Request(0, 0, 2000)) == 2048

    def test_max_reserves_the_same_for_all(self) -> None:
        rule = ReserveMax(983, 16, max_model_len=2048)
        assert rule.reservation(Request(0, 0, 1)) == rule.reservation(Request(1, 0, 2000)) == 2048

    def test_only_two_of_the_allocators_know_the_future(self) -> None:
        rules = [PagedAllocator, ReserveMax, ReserveOracle, ReservePow2]
        assert [rule for rule in rules if rule.uses_oracle] == [ReserveOracle, ReservePow2]


class TestChunks:
    def test_max_holds_exactly_seven_in_the_papers_pool(self) -> None:
        pool = ReserveMax(15_728 // 16, 16, max_model_len=2048)
        for seq_id in range(7):
            assert pool.can_admit(sequence(seq_id, 50)) is Admission.NOW
            holder(pool, seq_id, 50)
        assert pool.can_admit(sequence(7, 1)) is Admission.LATER
        assert not hold(pool, sequence(7), 1)
        assert pool.num_free_blocks == 87
        assert pool.tables[6] == list(range(768, 896))

    def test_a_reservation_is_rounded_up_to_a_chunk(self) -> None:
        pool = ReserveOracle(64, 4, max_model_len=64, oracle=Lengths(3))
        holder(pool, 0, 15)
        usage = pool.usage()
        assert usage.grants == {0: 18}
        assert (usage.total, usage.resident, usage.held, usage.free) == (256, 15, 32, 224)
        assert pool.tables[0] == list(range(8)), "18 tokens are 5 blocks, rounded up to 8"

    def test_a_model_length_that_is_no_power_of_two(self) -> None:
        pool = ReserveMax(12, 4, max_model_len=20)
        assert pool.max_sequence_tokens == 20
        holder(pool, 0, 1)
        assert pool.tables[0] == list(range(8))
        assert pool.can_admit(sequence(1)) is Admission.LATER

    def test_a_pool_smaller_than_the_model_holds_its_largest_chunk(self) -> None:
        assert ReserveMax(7, 4, max_model_len=64).max_sequence_tokens == 16


class TestInside:
    def test_the_reservation_is_taken_once_and_kept(self) -> None:
        pool = pow2(100)
        seq = holder(pool, 0, 30)
        table = list(pool.tables[0])
        assert hold(pool, seq, 31)
        assert pool.grow([seq], np.array([31]), 127).tolist() == [0] * 127
        assert pool.tables[0] == table
        assert pool.usage().resident == 158
        assert pool.num_appendable(np.array([31])) == 1
        assert pool.max_decode_steps(np.array([31])) == UNBOUNDED

    def test_beyond_the_reservation_is_refused_and_nothing_changes(self) -> None:
        pool = ReserveOracle(64, 4, max_model_len=64, oracle=Lengths(3))
        seq = holder(pool, 0, 15)
        before = pool.usage()
        assert hold(pool, seq, 18)
        assert not hold(pool, seq, 19)
        assert not hold(pool, sequence(1, 5), 9)
        assert pool.usage() == before._replace(resident=18)
        assert list(pool.tables) == [0]

    def test_the_version_tells_when_grants_changed(self) -> None:
        pool = pow2(8)
        versions = [pool.usage().version]
        first, _ = holder(pool, 0, 5), versions.append(pool.usage().version)
        hold(pool, first, 6)
        assert pool.usage().version == versions[-1]
        pool.free(first)
        versions.append(pool.usage().version)
        assert len(set(versions)) == 3

    def test_all_freed_merges_to_the_empty_pool(self) -> None:
        pool = pow2(8)
        empty = pool.usage()
        seqs = [holder(pool, seq_id, 1 + 13 * seq_id) for seq_id in range(40)]
        for seq in seqs[::2] + seqs[1::2]:
            pool.free(seq)
        assert pool.usage() == empty._replace(version=pool.usage().version)
        for seq_id in range(7):
            holder(pool, seq_id, 2000)
        assert pool.num_free_blocks == 87

    @pytest.mark.parametrize("rule", [ReserveMax, ReserveOracle, ReservePow2])
    def test_double_free_names_the_sequence(self, rule: type[ContiguousAllocator]) -> None:
        extra = {"oracle": Lengths(3)} if rule.uses_oracle else {}
        pool = rule(64, 4, max_model_len=64, **extra)
        seq = holder(pool, 17, 4)
        pool.free(seq)
        with pytest.raises(InvariantError, match="INV-blocks: sequence 17 "):
            pool.free(seq)
