"""Rows, bands, verdicts."""

from __future__ import annotations

import math

import pytest

from kvsim.reproduce.base import Band, Row, Verdict


def row(ours: float | None, band: Band | None, note: str = "", paper: float | None = 10.0) -> Row:
    return Row("batch", paper, ours, "sequences", band, note=note)


@pytest.mark.parametrize(
    ("ours", "band", "verdict"),
    [
        (10.0, Band(9, 11), "pass"),
        (9.0, Band(9, 11), "pass"),
        (11.0, Band(9, 11), "pass"),
        (8.999, Band(9, 11), "MISS"),
        (11.001, Band(9, 11), "MISS"),
        (1e9, Band(9), "pass"),
        (8.0, Band(9), "MISS"),
        (None, Band(9), "MISS"),
        (math.nan, Band(9), "MISS"),
        (10.0, None, "reported"),
        (None, None, "reported"),
    ],
)
def test_verdict(ours: float | None, band: Band | None, verdict: str) -> None:
    assert row(ours, band).verdict == verdict


def test_bands_around_a_value() -> None:
    assert Band.absolute(20.0, 4.5) == (15.5, 24.5)
    assert Band.relative(200.0, 0.1) == pytest.approx((180, 220))


def test_difference() -> None:
    assert row(12.0, None).difference == 2.0
    assert row(None, None).difference is None
    assert row(12.0, None, paper=None).difference is None


def test_a_miss_always_has_a_reason() -> None:
    assert row(8.0, Band(9)).remark == "cause unknown"
    assert row(8.0, Band(9), "the lengths differ.").remark == "the lengths differ."
    assert row(9.0, Band(9)).remark == ""
    assert row(8.0, Band(9)).verdict is Verdict.MISS
