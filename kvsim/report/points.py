"""What a report shows: settings, in each its series, in each its points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvsim.plots.data import Legend
from kvsim.report.estimate import Estimate
from kvsim.report.runs import FinishedRun

RATE = "rate"


@dataclass(frozen=True)
class Point:
    """Runs that differ in their seeds only, by seed.

    Attributes:
        x: where they stand along the curve, None for nowhere.
        identity: all that makes them the experiment they are, by key.
    """

    x: float | None
    runs: tuple[FinishedRun, ...]
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rate(self) -> float | None:
        """Requests a second."""
        rate: float | None = self.runs[0].summary[RATE]
        return rate

    @property
    def saturated(self) -> list[bool]:
        """Whether the backlog grew to the end, of every run for which that is defined."""
        return [flag for run in self.runs if (flag := run.summary.get("saturated")) is not None]

    def estimate(self, metric: str) -> Estimate | None:
        """The metric over the seeds; None where it is undefined."""
        return Estimate.of([run.summary.get(metric) for run in self.runs])


@dataclass(frozen=True)
class Series:
    """One curve: a system with one configuration, its points by x."""

    legend: Legend
    system: str
    points: tuple[Point, ...]

    def at(self, x: float | None) -> Point | None:
        """The first point that stands there."""
        return next((point for point in self.points if point.x == x), None)


@dataclass(frozen=True)
class Setting:
    """Series that can be compared: the same model, hardware and workload.

    Attributes:
        detail: what tells it from others of the same names: ``key=value, ...``.
        axis: the key that is varied along the curves.
        swept: other keys that tell settings or the series of a system apart.
        unequal: further keys that are not the same in all runs, each with its values; policies aside.
    """

    model: str
    hardware: str
    workload: str
    detail: str
    axis: str
    series: tuple[Series, ...]
    swept: tuple[str, ...]
    unequal: Mapping[str, tuple[str, ...]]

    @property
    def title(self) -> str:
        """What it is called."""
        workload = f"{self.workload}, {self.detail}" if self.detail else self.workload
        return f"{workload}, {self.model} on {self.hardware}"

    @property
    def runs(self) -> list[FinishedRun]:
        """All of them."""
        return [run for series in self.series for point in series.points for run in point.runs]

    @property
    def places(self) -> list[float | None]:
        """Where along the axis there are points, ascending; None last."""
        places = {point.x for series in self.series for point in series.points}
        return sorted(places, key=lambda x: (x is None, x or 0))

    @property
    def common_place(self) -> float | None:
        """Where most series have a point; of several such places the highest."""
        return max(reversed(self.places), key=lambda x: sum(series.at(x) is not None for series in self.series))
