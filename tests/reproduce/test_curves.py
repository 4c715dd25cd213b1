"""Comparison of latency curves by the rate at a level, on curves that are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from kvsim.reproduce import fig12a, fig12d
from kvsim.reproduce.curves import LEVEL, Curve, compare_curves, simulate_curve


class Formula:
    """Stands in for a `Runner`: latency is a formula of system and rate."""

    def __init__(self, latency: Callable[[str, float], float]) -> None:
        self._latency = latency
        self.asked: list[float] = []

    def mean(self, metric: str, *overrides: str, seeds: Sequence[int]) -> float:
        assert metric == "mean_normalized_latency"
        given = dict(override.split("=") for override in overrides)
        self.asked.append(float(given["rate"]))
        return self._latency(given["system"], float(given["rate"]))

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [function(item) for item in items]


CROSSING = Curve("A", "orca_max", ((1.0, 0.05), (2.0, 0.1), (3.0, 0.4)))
OPEN = Curve("B", "vllm_v1", ((1.0, 0.05), (2.0, 0.1)))


def exponential(threshold: float) -> Callable[[str, float], float]:
    """Log-linear latency that reaches the level at `threshold`."""
    return lambda _, rate: LEVEL * math.exp(2 * (rate - threshold))


def test_band_of_a_curve_that_crosses() -> None:
    row = CROSSING.row(2.2)
    assert row.band == pytest.approx((1.7, 3.45))
    assert row.paper == pytest.approx(2.5)
    assert row.verdict == "pass"
    assert CROSSING.row(1.6).verdict == "MISS"


def test_band_of_a_curve_that_leaves_the_axis() -> None:
    row = OPEN.row(50.0)
    assert row.band == pytest.approx((1.7, math.inf))
    assert (row.paper, row.verdict) == (None, "pass")
    assert "after 2.0 req/s" in row.note
    assert OPEN.row(1.6).verdict == "MISS"
    assert OPEN.row(None).verdict == "MISS"


@pytest.mark.parametrize("threshold", [0.5, 1.99, 2.0, 2.3, 9.0])
def test_rate_at_the_level(threshold: float) -> None:
    runner = Formula(exponential(threshold))
    found = simulate_curve(runner, "fig0", CROSSING)  # type: ignore[arg-type]
    assert found.rate == pytest.approx(threshold)
    assert {1.0, 2.0, 3.0} <= set(found.points) == set(runner.asked)
    assert len(set(runner.asked)) < 20


def test_a_curve_that_never_reaches_the_level_has_no_rate() -> None:
    assert simulate_curve(Formula(lambda *_: 0.1), "fig0", CROSSING).rate is None  # type: ignore[arg-type]
    assert simulate_curve(Formula(lambda *_: 0.9), "fig0", CROSSING).rate is None  # type: ignore[arg-type]


def test_panel() -> None:
    outcome, rates = compare_curves(Formula(exponential(2.4)), "fig0", [CROSSING, OPEN])  # type: ignore[arg-type]
    assert rates == pytest.approx({"orca_max": 2.4, "vllm_v1": 2.4})
    assert [row.verdict for row in outcome.rows] == ["pass", "pass"]
    assert [marker.rate for marker in outcome.markers if marker[:2] == ("A", "paper")] == [1.0, 2.0, 3.0]
    ours = [marker.rate for marker in outcome.markers if marker[:2] == ("B", "kvsim")]
    assert ours == sorted(ours) and len(ours) > 2
    assert outcome.draw().get_ylim() == (0, 1)


@pytest.mark.parametrize(
    ("module", "bands"),
    [
        (fig12a, [(0.085, 0.1725), (0.425, math.inf), (0.6375, math.inf), (0.85, 1.265), (1.53, 2.185)]),
        (fig12d, [(0.85, 1.4375), (2.55, 4.6), (13.6, math.inf), (17.85, math.inf), (23.375, 32.2)]),
    ],
)
def test_bands_of_the_published_curves(module: Any, bands: list[tuple[float, float]]) -> None:
    assert [curve.row(1.0).band for curve in module.CURVES] == [pytest.approx(band) for band in bands]
    for curve in module.CURVES:
        rates = [rate for rate, _ in curve.points]
        assert rates == sorted(set(rates))


def test_gains_of_fig12a() -> None:
    def latency(system: str, rate: float) -> float:
        thresholds = {"fastertransformer": 0.13, "orca_max": 0.6, "orca_pow2": 0.8, "orca_oracle": 1.0}
        return exponential(thresholds.get(system, 1.9))(system, rate)

    rows = fig12a.reproduce(Formula(latency)).rows  # type: ignore[arg-type]
    assert [row.ours for row in rows[-2:]] == pytest.approx([1.9, 1.9 / 0.6])
    assert {row.verdict.value for row in rows} == {"pass"}
    never = fig12a.reproduce(Formula(lambda *_: 0.1)).rows  # type: ignore[arg-type]
    assert {row.verdict.value for row in never} == {"MISS"}
