"""The data of a setting's figures, gathered once for the page and for the PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvsim.errors import ConfigError
from kvsim.plots.data import Curve, Distribution, Legend, Split, Timeline
from kvsim.report.facts import arrivals
from kvsim.report.points import RATE, Series, Setting
from kvsim.report.runs import FinishedRun
from kvsim.report.samples import LATENCIES, Steps, distribution, latencies_ms

CURVES = (
    "mean_normalized_latency",
    "median_ttft_ms",
    "p99_ttft_ms",
    "median_tpot_ms",
    "p99_tpot_ms",
    "mean_batch_size",
)
SHARES = ("token_state", "reserved", "internal", "external")

MAX_QUANTILES = 201
ALL_QUANTILES = 40_000
MAX_BUCKETS = 400
ALL_BUCKETS = 4_000
"""Bounds a figure and a report: together they keep the page below 8 MB, 4.8 MB of which are Plotly's."""


@dataclass(frozen=True)
class Charts:
    """What the figures of one setting show.

    Attributes:
        curves: metric -> a curve a series.
        place: where along the axis `timelines` are taken, and which place is shown first of what can be chosen.
        splits: place -> the split of every series there.
        distributions: place -> TTFT, TPOT, E2EL -> a distribution a series, seeds pooled.
        timelines: the run with the first seed of each series.
        notes: what could not be shown, and why.
    """

    setting: Setting
    curves: dict[str, list[Curve]]
    place: float | None
    splits: dict[float | None, list[Split]]
    distributions: dict[float | None, dict[str, list[Distribution]]]
    timelines: list[Timeline]
    notes: list[str]


def gather(settings: Sequence[Setting]) -> list[Charts]:
    """The charts of all settings; the more there are, the coarser each."""
    num_curves = sum(len(LATENCIES) * len(series.points) for setting in settings for series in setting.series)
    num_timelines = sum(len(setting.series) for setting in settings)
    quantiles = min(MAX_QUANTILES, max(11, ALL_QUANTILES // num_curves))
    buckets = min(MAX_BUCKETS, max(20, ALL_BUCKETS // num_timelines))
    return [_gather(setting, quantiles, buckets) for setting in settings]


def _gather(setting: Setting, quantiles: int, buckets: int) -> Charts:
    notes: list[str] = []
    place = setting.common_place
    chosen = [(series.legend, point) for series in setting.series if (point := series.at(place)) is not None]
    absent = [series.legend.label for series in setting.series if series.at(place) is None]
    if absent:
        notes.append(f"No run of {', '.join(absent)} at {place_text(setting, place)}.")
    return Charts(
        setting=setting,
        curves={metric: [_curve(series, metric) for series in setting.series] for metric in CURVES},
        place=place,
        splits={x: _splits(setting, x) for x in setting.places},
        distributions={x: _distributions(setting, x, quantiles, notes) for x in setting.places},
        timelines=_timelines([(legend, point.runs[0]) for legend, point in chosen], buckets, notes),
        notes=notes,
    )


def axis_label(setting: Setting) -> str:
    """What the horizontal axis of the curves says."""
    return "Request rate, req/s" if setting.axis == RATE else setting.axis


def place_text(setting: Setting, place: float | None) -> str:
    """A place along the axis, as text."""
    if place is None:
        return arrivals(setting.runs) if setting.axis == RATE else f"no {setting.axis}"
    return f"{place:g} req/s" if setting.axis == RATE else f"{setting.axis}={place:g}"


def _curve(series: Series, metric: str) -> Curve:
    points = [point for point in series.points if point.x is not None]
    estimates = [point.estimate(metric) for point in points]
    spread = [(e.mean, min(e.values), max(e.values)) if e else (np.nan,) * 3 for e in estimates]
    value, low, high = np.array(spread, dtype=np.float64).reshape(-1, 3).T
    x = np.array([point.x for point in points], dtype=np.float64)
    return Curve(series.legend, x, value, low, high, np.array([any(p.saturated) for p in points], dtype=np.bool_))


def _splits(setting: Setting, place: float | None) -> list[Split]:
    splits = []
    for series in setting.series:
        point = series.at(place)
        estimates = {name: point.estimate(f"kv_{name}_frac") if point else None for name in SHARES}
        shares = {name: estimate.mean for name, estimate in estimates.items() if estimate}
        if len(shares) == len(SHARES):
            splits.append(Split(series.legend, shares))
    return splits


def _distributions(
    setting: Setting, place: float | None, quantiles: int, notes: list[str]
) -> dict[str, list[Distribution]]:
    found: dict[str, list[Distribution]] = {name: [] for name in LATENCIES}
    for series in setting.series:
        point = series.at(place)
        try:
            samples = [latencies_ms(run) for run in point.runs] if point else []
        except ConfigError as error:
            notes.append(f"Without a distribution: {error}.")
            continue
        for name in LATENCIES:
            pooled = np.concatenate([sample[name] for sample in samples]) if samples else np.empty(0)
            if len(pooled):
                found[name].append(distribution(series.legend, pooled, quantiles))
    return found


def _timelines(runs: Sequence[tuple[Legend, FinishedRun]], buckets: int, notes: list[str]) -> list[Timeline]:
    """Until the first of the runs ended: from there on the others but serve their backlog."""
    steps: list[tuple[Legend, Steps]] = []
    for legend, run in runs:
        try:
            steps.append((legend, Steps(run)))
        except ConfigError as error:
            notes.append(f"Without a timeline: {error}.")
    steps = [(legend, one) for legend, one in steps if one.end_s]
    if not steps:
        return []
    end_s = min(one.end_s for _, one in steps)
    return [one.timeline(legend, end_s, buckets) for legend, one in steps]
