"""Sizes of the captured graphs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_backend.buckets import bucket_of, decode_shape, make_buckets, mixed_shape


@pytest.mark.parametrize(
    ("limit", "count", "last"),
    [(None, 51, (496, 512)), (256, 35, (248, 256)), (20, 6, (16, 24)), (100, 16, (96, 104)), (1, 1, (1,))],
)
def test_rows_go_up_to_the_limit(limit: int | None, count: int, last: tuple[int, ...]) -> None:
    buckets = make_buckets(limit, None)
    assert len(buckets.decode) == count
    assert buckets.decode[-len(last) :] == last
    assert buckets.samples == buckets.decode


@pytest.mark.parametrize(
    ("budget", "count", "last"), [(None, 48, (3840, 4096)), (2048, 40, (1920, 2048)), (2560, 42, (2304, 2560))]
)
def test_tokens_go_up_to_the_budget(budget: int | None, count: int, last: tuple[int, int]) -> None:
    mixed = make_buckets(256, budget).mixed
    assert (len(mixed), mixed[:3], mixed[-2:]) == (count, (16, 32, 48), last)


@given(limit=st.integers(1, 5000))
def test_buckets_of_a_limit_are_the_first_of_all(limit: int) -> None:
    own, every = make_buckets(limit, limit), make_buckets(None, None)
    for sizes, standard in zip(own, every, strict=True):
        assert sizes == standard[: len(sizes)]
        assert sizes[-1] >= min(limit, standard[-1])


@given(size=st.integers(1, 5000), limit=st.none() | st.integers(1, 5000))
def test_a_bucket_holds_its_size_and_the_one_before_does_not(size: int, limit: int | None) -> None:
    mixed = make_buckets(None, limit).mixed
    bucket = bucket_of(mixed, size)
    if bucket is None:
        assert size > mixed[-1]
    else:
        at = mixed.index(bucket)
        assert (mixed[at - 1] if at else 0) < size <= bucket


@pytest.mark.parametrize("query_tile", [1, 16, 128])
@pytest.mark.parametrize("tokens", [1, 7, 16, 256, 4096])
def test_tiles_suffice_for_the_most_uneven_rows(tokens: int, query_tile: int) -> None:
    shape = mixed_shape(tokens, 256, query_tile)
    assert shape.rows == shape.singles + shape.longs
    lengths = [query_tile + 1] * min(shape.longs, tokens // (query_tile + 1))
    if lengths:
        lengths[0] += tokens - sum(lengths)
    assert sum(-(-length // query_tile) for length in lengths) <= shape.tiles


def test_a_decode_shape_has_no_longer_rows() -> None:
    assert decode_shape(8) == (8, 8, 0, 0, 8)
