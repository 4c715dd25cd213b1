"""`PagedAllocator` by hand: which block goes where, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

from kvsim.errors import InvariantError
from kvsim.kv.paged import PagedAllocator
from kvsim.plan import UNBOUNDED
from kvsim.protocols import Admission
from tests.kv.holders import free_order, hold, holder, sequence


def paged(num_blocks: int = 8, block_size: int = 4, watermark: float = 0.0) -> PagedAllocator:
    return PagedAllocator(num_blocks, block_size, max_model_len=1024, watermark=watermark)


class TestQueue:
    def test_blocks_come_from_the_front_in_order(self) -> None:
        pool = paged()
        holder(pool, 0, 9)
        holder(pool, 1, 4)
        assert pool.tables == {0: [0, 1, 2], 1: [3]}
        assert pool.num_free_blocks == 4

    def test_freed_blocks_go_to_the_tail_the_end_of_the_table_first(self) -> None:
        pool = paged()
        first, second = holder(pool, 0, 9), holder(pool, 1, 8)
        pool.free(first)
        pool.free(second)
        assert free_order(pool) == [5, 6, 7, 2, 1, 0, 4, 3]

    def test_a_table_keeps_what_it_has_when_it_grows(self) -> None:
        pool = paged()
        seq = holder(pool, 0, 3)
        holder(pool, 1, 1)
        assert hold(pool, seq, 4)
        assert pool.tables[0] == [0]
        assert hold(pool, seq, 9)
        assert pool.tables[0] == [0, 2, 3]

    def test_blocks_of_one_token(self) -> None:
        pool = paged(num_blocks=3, block_size=1)
        seq = holder(pool, 0, 2)
        assert pool.grow([seq], np.array([2]), 1).tolist() == [1]
        assert pool.tables[0] == [0, 1, 2]


class TestShortage:
    def test_too_much_is_refused_and_nothing_changes(self) -> None:
        pool = paged()
        seq = holder(pool, 0, 5)
        before = pool.usage()
        assert not hold(pool, seq, 33)
        assert not hold(pool, sequence(1), 25)
        assert pool.usage() == before
        assert pool.tables == {0: [0, 1]}
        assert hold(pool, seq, 32), "exactly the pool"
        assert pool.num_free_blocks == 0
        pool.check_integrity()

    def test_growth_beyond_the_pool_is_a_broken_law(self) -> None:
        pool = paged(num_blocks=2)
        seqs = [holder(pool, 0, 4), holder(pool, 1, 4)]
        with pytest.raises(InvariantError, match="INV-blocks: .*2 blocks.* 0 free"):
            pool.grow(seqs, np.array([4, 4]), 1)

    def test_double_free_names_the_sequence(self) -> None:
        pool = paged()
        seq = holder(pool, 17, 4)
        pool.free(seq)
        with pytest.raises(InvariantError, match="INV-blocks: sequence 17 "):
            pool.free(seq)
        with pytest.raises(InvariantError, match="sequence 3 "):
            pool.free(sequence(3))


class TestWatermark:
    def test_admission_leaves_it_free(self) -> None:
        pool = paged(num_blocks=10, watermark=0.25)
        assert pool.can_admit(sequence(0, 32)) is Admission.NOW
        assert pool.can_admit(sequence(0, 33)) is Admission.LATER
        assert pool.max_sequence_tokens == 32

    def test_growth_may_use_it(self) -> None:
        pool = paged(num_blocks=10, watermark=0.25)
        seq = holder(pool, 0, 32)
        pool.grow([seq], np.array([32]), 8)
        assert pool.num_free_blocks == 0

    @pytest.mark.parametrize(("num_blocks", "tokens"), [(983, 974 * 16), (99, 99 * 16), (100, 99 * 16)])
    def test_one_percent_is_rounded_down_to_blocks(self, num_blocks: int, tokens: int) -> None:
        pool = PagedAllocator(num_blocks, 16, max_model_len=1 << 20, watermark=0.01)
        assert pool.max_sequence_tokens == tokens

    def test_the_model_may_be_the_limit(self) -> None:
        assert paged(num_blocks=300).max_sequence_tokens == 1024


class TestQuestions:
    def test_admission_counts_all_known_tokens_and_takes_nothing(self) -> None:
        pool = paged()
        seq = sequence(0, 30)
        assert pool.can_admit(seq) is Admission.NOW
        seq.num_tokens = 33
        assert pool.can_admit(seq) is Admission.LATER
        assert pool.num_free_blocks == 8
        assert not pool.tables

    def test_one_free_block_lets_all_append_up_to_and_including_the_row_that_takes_it(self) -> None:
        pool = paged(num_blocks=5)
        for seq_id, tokens in enumerate([3, 4, 4, 2]):
            holder(pool, seq_id, tokens)
        assert pool.num_appendable(np.array([3, 4, 4, 2])) == 2
        assert pool.num_appendable(np.array([3, 3, 3, 2])) == 4

    def test_nobody_appends_to_a_full_pool_whether_or_not_he_needs_a_block(self) -> None:
        pool = paged(num_blocks=2)
        holder(pool, 0, 5)
        assert pool.num_appendable(np.array([5])) == 0
        assert pool.max_decode_steps(np.array([5])) == 0

    def test_steps_until_the_last_free_block_would_go(self) -> None:
        pool = paged(num_blocks=3)
        holder(pool, 0, 6)
        assert pool.max_decode_steps(np.array([6])) == 2, "the third round takes the only free block"

    def test_nobody_to_decode_fits_for_ever(self) -> None:
        assert paged().max_decode_steps(np.array([], dtype=np.int64)) == UNBOUNDED

    def test_usage_counts_slots(self) -> None:
        pool = paged()
        seq = holder(pool, 0, 6)
        pool.grow([seq], np.array([6]), 5)
        usage = pool.usage()
        assert (usage.total, usage.resident, usage.held, usage.free) == (32, 11, 12, 20)
        assert usage.grants == {}
