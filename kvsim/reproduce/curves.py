"""Figure 12 of the vLLM paper: latency over request rate. Shared by its panels.

Curves are compared by the rate at which they reach a latency: markers far apart and noisy near the knee say no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kvsim.plots.figures import latency_curves
from kvsim.reproduce.base import Band, Marker, Outcome, Row
from kvsim.reproduce.runner import Runner
from kvsim.search import find_threshold, log_linear

SEEDS = range(3)
LEVEL = 0.2
"""s/token, the latency at which curves are compared."""

TOP = 1.0
"""s/token, where the paper cuts its axis."""

WIDENING = 0.15
"""By how much of a rate the band reaches beyond the paper's two markers around `LEVEL`."""


@dataclass(frozen=True)
class Curve:
    """A published curve: (rate, req/s; latency, s/token) in ascending order of rates; `note` explains a miss."""

    label: str
    system: str
    points: tuple[tuple[float, float], ...]
    note: str = ""

    @property
    def crossing(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """The markers around the level; None where the curve leaves the axis before it."""
        return next(((below, above) for below, above in pairwise(self.points) if below[1] <= LEVEL < above[1]), None)

    @property
    def last_below(self) -> float:
        """Rate of the last marker at most at the level."""
        return self.crossing[0][0] if self.crossing else self.points[-1][0]

    def row(self, ours: float | None) -> Row:
        """Our rate at the level, compared."""
        low = self.last_below * (1 - WIDENING)
        quantity, unit = f"{self.label} rate at {LEVEL} s/token", "req/s"
        if self.crossing is None:
            note = self.note or f"the paper's curve leaves its axis after {self.last_below} req/s."
            return Row(quantity, None, ours, unit, Band(low), digits=3, note=note)
        below, above = self.crossing
        band = Band(low, above[0] * (1 + WIDENING))
        return Row(quantity, log_linear(below, above, LEVEL), ours, unit, band, digits=3, note=self.note)


@dataclass(frozen=True)
class Simulated:
    """Our curve: rate -> latency, and the rate at the level."""

    points: Mapping[float, float]
    rate: float | None


def simulate_curve(runner: Runner, experiment: str, curve: Curve) -> Simulated:
    """Our latency at the paper's rates and at those that a search for the level asks for, means of the seeds."""

    def measure(rate: float) -> float:
        overrides = (f"experiment={experiment}", f"system={curve.system}", f"rate={rate!r}")
        return runner.mean("mean_normalized_latency", *overrides, seeds=SEEDS)

    rates = [rate for rate, _ in curve.points]
    points = dict(zip(rates, runner.map(measure, rates), strict=True))

    def is_beyond(rate: float) -> bool:
        points[rate] = measure(rate)
        return points[rate] > LEVEL

    start = curve.last_below
    bracket = find_threshold(is_beyond, start, (start / 10, 10 * start), growth=1.25, width=0.06)
    low, high = bracket.low, bracket.high
    if low is None or high is None:
        return Simulated(points, None)
    return Simulated(points, log_linear((low, points[low]), (high, points[high]), LEVEL))


def compare_curves(runner: Runner, experiment: str, curves: Sequence[Curve]) -> tuple[Outcome, dict[str, float | None]]:
    """All curves of a panel, and the rate at the level of each system."""
    found = dict(zip(curves, runner.map(lambda curve: simulate_curve(runner, experiment, curve), curves), strict=True))
    paper = {curve.system: list(curve.points) for curve in curves}
    ours = {curve.system: sorted(simulated.points.items()) for curve, simulated in found.items()}
    labels = {curve.system: curve.label for curve in curves}
    markers = [
        Marker(label, source, rate, latency)
        for system, label in labels.items()
        for source, points in (("paper", paper[system]), ("kvsim", ours[system]))
        for rate, latency in points
    ]
    rows = [curve.row(simulated.rate) for curve, simulated in found.items()]
    outcome = Outcome(rows, lambda: latency_curves(paper, ours, labels, LEVEL, TOP), markers)
    return outcome, {curve.system: simulated.rate for curve, simulated in found.items()}
