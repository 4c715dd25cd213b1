"""Runs put in order: settings (what was served on what), in each the series (who served), in each the points."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kvsim.plots.colours import styles
from kvsim.plots.data import Legend
from kvsim.report.estimate import Estimate
from kvsim.report.runs import LABELS, FinishedRun, LostRun

Key = Mapping[str, Any]
T = TypeVar("T")

NO_RESULT = ("seed", "output", "engine.fast_forward", "engine.record_plans", "engine.record_blocks")
"""Keys that leave a run the same experiment."""
WINDOW = ("duration", "num_requests", "warmup")
"""Keys that may change along a curve, since a slow rate needs a longer run."""
GROUPS = ("model", "hardware", "workload")
"""Settings differ in one of these, or in a key below it."""
POLICY = ("system", "scheduler", "allocator")
"""What a system is made of."""
RATE = "rate"


@dataclass(frozen=True)
class Point:
    """Runs that differ in their seeds only, by seed; `x` is where they stand along the curve, None for nowhere."""

    x: float | None
    runs: tuple[FinishedRun, ...]

    @property
    def rate(self) -> float | None:
        """Requests a second."""
        rate: float | None = self.runs[0].summary[RATE]
        return rate

    @property
    def num_saturated(self) -> int:
        """Runs whose backlog grew to the end."""
        return sum(bool(run.summary.get("saturated")) for run in self.runs)

    def estimate(self, metric: str) -> Estimate | None:
        """The metric over the seeds; None where it is undefined."""
        return Estimate.of([run.summary.get(metric) for run in self.runs])


@dataclass(frozen=True)
class Series:
    """One curve: a system with one configuration, its points by x."""

    legend: Legend
    system: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Setting:
    """What the series of a section share.

    Attributes:
        label: model, hardware and workload, and whatever tells it from settings with the same ones.
        axis: key along the curves.
        unequal: other keys in which the systems differ, with their values.
    """

    label: str
    axis: str
    series: tuple[Series, ...]
    unequal: Mapping[str, tuple[str, ...]]

    @property
    def runs(self) -> list[FinishedRun]:
        """All of them."""
        return [run for series in self.series for point in series.points for run in point.runs]


def arrange(runs: Sequence[FinishedRun]) -> tuple[list[Setting], list[LostRun]]:
    """The settings of all runs, and runs left out because they repeat another one."""
    look = styles(run.summary["system"] for run in runs)
    kept, repeated = _without_repeats(runs)
    settings = []
    sections = _group(kept, lambda run: _part(_identity(run), _is_setting))
    names = [[_identity(section[0])[name] for name in GROUPS] for section in sections]
    for section, name in zip(sections, names, strict=True):
        same = [other[0] for other, its in zip(sections, names, strict=True) if its == name]
        detail = _differences([_part(_identity(run), _is_setting) for run in same])[same.index(section[0])]
        settings.append(_setting(" · ".join(filter(None, [*map(_text, name), detail])), section))
    order = list(look)
    return [_styled(setting, look, order) for setting in settings], repeated


def _styled(setting: Setting, look: Mapping[str, Any], order: Sequence[str]) -> Setting:
    """The setting with its series in the order of the systems, each with its look."""
    series = []
    for system in order:
        own = [one for one in setting.series if one.system == system]
        series += [
            replace(one, legend=Legend(one.legend.label, look[system], variant)) for variant, one in enumerate(own)
        ]
    return replace(setting, series=tuple(series))
