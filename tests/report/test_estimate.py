"""Means and spreads over seeds."""

from __future__ import annotations

import pytest

from kvsim.report.estimate import Estimate, student_t


def test_one_seed_is_exact() -> None:
    assert Estimate.of([0.1 + 0.2]) == (0.1 + 0.2, 0.1 + 0.2, 0.1 + 0.2, (0.1 + 0.2,), 1)


def test_two_seeds_show_both() -> None:
    assert Estimate.of([3.0, 1.0]) == (2.0, 1.0, 3.0, (3.0, 1.0), 2)


def test_three_seeds_show_the_interval() -> None:
    estimate = Estimate.of([1, 2, 3])
    assert estimate is not None
    assert estimate.mean == 2
    assert estimate.high - estimate.mean == pytest.approx(4.303 / 3**0.5)  # t at 2 degrees, standard deviation 1
    assert estimate.mean - estimate.low == pytest.approx(estimate.high - estimate.mean)


def test_undefined_values_are_passed_over_and_counted() -> None:
    estimate = Estimate.of([None, 4.0, None])
    assert estimate == (4.0, 4.0, 4.0, (4.0,), 3)
    assert estimate is not None and estimate.is_partial
    assert Estimate.of([None]) is None


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (9, 2.262), (10, 2.228), (20, 2.086), (120, 1.980)])
def test_student_quantiles(freedom: int, quantile: float) -> None:
    assert student_t(freedom) == pytest.approx(quantile, abs=1e-3)
