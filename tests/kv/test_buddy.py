"""`BuddyPool`: how it is cut, split and merged."""

from __future__ import annotations

import random

import pytest

from kvsim.errors import InvariantError
from kvsim.kv.buddy import BuddyPool


def chunks(pool: BuddyPool) -> list[tuple[int, int]]:
    """Free chunks as (start, blocks), by address."""
    return sorted(pool.chunks())


def test_the_papers_pool_is_seven_chunks_of_128_and_the_binary_digits_of_the_rest() -> None:
    pool = BuddyPool(15_728 // 16, 128)
    assert [size for _, size in chunks(pool)] == [128] * 7 + [64, 16, 4, 2, 1]
    assert [start for start, _ in chunks(pool)] == [0, 128, 256, 384, 512, 640, 768, 896, 960, 976, 980, 982]
    assert pool.num_free_blocks == 983
    assert pool.largest_free == 128


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 7, 8, 100, 127, 128, 129, 1000])
def test_chunks_cover_the_pool_and_start_at_multiples_of_their_size(num_blocks: int) -> None:
    found = chunks(BuddyPool(num_blocks, 16))
    assert [block for start, size in found for block in range(start, start + size)] == list(range(num_blocks))
    assert all(start % size == 0 for start, size in found)
    assert max(size for _, size in found) <= 16


def test_the_smallest_chunk_that_serves_is_split_its_lower_half_goes() -> None:
    pool = BuddyPool(14, 8)
    assert pool.take(1) == 12
    assert pool.take(2) == 8
    assert pool.take(2) == 10
    assert pool.take(4) == 0
    assert chunks(pool) == [(4, 4), (13, 1)]
    assert pool.num_free_blocks == 5


def test_of_equal_chunks_the_lowest_address_goes_whatever_the_order_of_release() -> None:
    pool = BuddyPool(16, 4)
    for _ in range(4):
        pool.take(4)
    for start in (12, 4, 8):
        pool.give_back(start, 4)
    assert [pool.take(4) for _ in range(3)] == [4, 8, 12]


def test_nothing_is_taken_where_no_chunk_serves() -> None:
    pool = BuddyPool(7, 8)
    assert not pool.fits(8)
    assert pool.take(8) is None
    assert chunks(pool) == [(0, 4), (4, 2), (6, 1)]
    assert pool.fits(4)
    pool.take(4)
    assert pool.largest_free == 2
    assert not pool.fits(4), "three blocks are free, but not four in a row"


def test_an_empty_pool_has_no_largest_chunk() -> None:
    pool = BuddyPool(1, 1)
    pool.take(1)
    assert pool.largest_free == 0
    assert not pool.fits(1)
    assert pool.take(1) is None


def test_a_chunk_merges_with_its_buddy_only() -> None:
    pool = BuddyPool(4, 4)
    for _ in range(4):
        pool.take(1)
    pool.give_back(1, 1)
    pool.give_back(2, 1)
    assert chunks(pool) == [(1, 1), (2, 1)], "neighbours, but no buddies"
    pool.give_back(0, 1)
    assert chunks(pool) == [(0, 2), (2, 1)]
    pool.give_back(3, 1)
    assert chunks(pool) == [(0, 4)]


def test_two_of_the_largest_never_merge() -> None:
    pool = BuddyPool(8, 4)
    for start in (pool.take(4), pool.take(4)):
        assert start is not None
        pool.give_back(start, 4)
    assert chunks(pool) == [(0, 4), (4, 4)]


@pytest.mark.parametrize("seed", range(5))
def test_all_single_blocks_merge_back_to_the_empty_pool(seed: int) -> None:
    pool = BuddyPool(87, 32)
    empty = chunks(pool)
    starts = [pool.take(1) for _ in range(87)]
    assert pool.take(1) is None
    assert chunks(pool) == []
    random.Random(seed).shuffle(starts)
    for start in starts:
        assert start is not None
        pool.give_back(start, 1)
    assert chunks(pool) == empty


def test_double_free_names_the_chunk() -> None:
    pool = BuddyPool(8, 4)
    start = pool.take(4)
    assert start is not None
    pool.give_back(start, 4)
    with pytest.raises(InvariantError, match=f"the chunk of 4 blocks at {start} is freed twice"):
        pool.give_back(start, 4)
