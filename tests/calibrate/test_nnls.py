"""Least squares with no coefficient below zero: known answers and the conditions that only the best one meets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.calibrate.nnls import nnls


def test_plain_least_squares_where_nothing_is_negative() -> None:
    a = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert nnls(a, np.array([1.0, 3.0, 5.0])) == pytest.approx([1.0, 2.0])


def test_a_negative_coefficient_becomes_zero_and_the_others_make_up_for_it() -> None:
    a = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert nnls(a, np.array([5.0, 3.0, 1.0])) == pytest.approx([3.0, 0.0])


def test_columns_of_zeros_and_equal_columns() -> None:
    column = np.array([1.0, 2.0, 3.0])
    x = nnls(np.column_stack((column, np.zeros(3), column)), 4 * column)
    assert x[1] == 0
    assert x[0] + x[2] == pytest.approx(4)


@given(seed=st.integers(0, 10_000), rows=st.integers(2, 40), columns=st.integers(1, 30))
def test_best_of_all(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-3, 4, columns)
    b = rng.normal(size=rows)
    x = nnls(a, b)
    gradient = (a.T @ (a @ x - b)) / np.sqrt(np.square(a).sum(axis=0))
    assert (x >= 0).all()
    assert (gradient > -1e-6).all()  # no coefficient at zero wants to grow
    assert np.abs(gradient[x > 0]).max(initial=0) < 1e-6  # and no other one wants to change
