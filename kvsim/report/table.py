"""The table of all points: rows of plain numbers, and the same rows as text for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from kvsim.report.estimate import FEWEST_FOR_INTERVAL, Estimate
from kvsim.report.points import RATE, Point, Series, Setting
from kvsim.report.runs import LostRun
from kvsim.table import METRICS, as_text

Row = dict[str, str | int | float | None]


COLUMNS = (
    "completed",
    "rejected",
    "failed",
    "unfinished",
    "request_throughput",
    "output_throughput",
    "mean_normalized_latency",
    "median_ttft_ms",
    "p99_ttft_ms",
    "median_tpot_ms",
    "p99_tpot_ms",
    "median_e2el_ms",
    "p99_e2el_ms",
    "mean_batch_size",
    "kv_token_state_frac",
    "kv_reserved_frac",
    "kv_internal_frac",
    "kv_external_frac",
    "num_preemptions",
)
"""Metrics of a point, in order."""

UNDEFINED = "–"
LEFT_OUT = ("run", "system", "rate", "seed", "state", "reason")


class Cell(NamedTuple):
    """A value and, where there are several seeds, their spread."""

    text: str
    spread: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.spread}" if self.spread else self.text


def ordered_points(setting: Setting) -> list[tuple[Series, Point]]:
    """The points of a setting: along the axis, at each place in the order of the series."""
    pairs = [(series, point) for series in setting.series for point in series.points]
    return sorted(pairs, key=lambda pair: (pair[1].x is None, pair[1].x or 0))


def rows(settings: Sequence[Setting]) -> list[Row]:
    """A flat row a point: means over seeds, with `metric`_low and `metric`_high as `Estimate` defines them.

    `metric`_runs counts the seeds that define it.
    """
    axes = sorted({setting.axis for setting in settings} - {RATE})
    found: list[Row] = []
    for setting in settings:
        for series, point in ordered_points(setting):
            row: Row = {
                "system": series.legend.label,
                "model": setting.model,
                "hardware": setting.hardware,
                "workload": setting.workload,
                RATE: point.rate,
                **{axis: point.x if axis == setting.axis else None for axis in axes},
                "seeds": " ".join(str(run.summary.get("seed")) for run in point.runs),
                "runs": len(point.runs),
                "saturated_runs": sum(point.saturated) if point.saturated else None,
            }
            for metric in COLUMNS:
                estimate = point.estimate(metric)
                for name, value in zip(("", "_low", "_high"), (estimate or (None,) * 3)[:3], strict=True):
                    row[f"{metric}{name}"] = value
                row[f"{metric}_runs"] = len(estimate.values) if estimate else 0
            found.append(row)
    return found


def header(settings: Sequence[Setting]) -> list[str]:
    """Headings of `cells`."""
    axes = sorted({setting.axis for setting in settings} - {RATE})
    return [
        *_setting_names(settings),
        "system",
        "rate, req/s",
        *axes,
        "seeds",
        "saturated",
        *(METRICS[metric].label for metric in COLUMNS),
    ]


def cells(settings: Sequence[Setting]) -> list[list[Cell]]:
    """The points as text."""
    found = []
    axes = sorted({setting.axis for setting in settings} - {RATE})
    for setting in settings:
        for series, point in ordered_points(setting):
            places = [Cell(_text(point.x) if axis == setting.axis else UNDEFINED) for axis in axes]
            found.append(
                [
                    *(Cell(setting.title) for _ in _setting_names(settings)),
                    Cell(series.legend.label),
                    Cell(_text(point.rate)),
                    *places,
                    Cell(str(len(point.runs))),
                    Cell(_saturated(point)),
                    *(_cell(point.estimate(metric), METRICS[metric].style) for metric in COLUMNS),
                ]
            )
    return found


def to_csv(settings: Sequence[Setting]) -> str:
    """The rows as CSV, numbers in full, empty where undefined."""
    table = rows(settings)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return stream.getvalue()


def to_markdown(settings: Sequence[Setting], lost: Sequence[LostRun], facts: Sequence[tuple[str, str]]) -> str:
    """Facts, the table, and the runs left out."""
    lines = ["# kvsim report", "", *(f"- {name}: {_escaped(value)}" for name, value in facts), ""]
    lines += _markdown_table(header(settings), [[str(cell) for cell in row] for row in cells(settings)])
    if lost:
        lines += ["", "## Runs left out", "", *_markdown_table(LEFT_OUT, lost_cells(lost))]
    return "\n".join(lines) + "\n"


def lost_cells(lost: Sequence[LostRun]) -> list[list[str]]:
    """The runs left out as text, under `LEFT_OUT`."""
    return [
        [run.name, *(_text(run.labels.get(label)) for label in ("system", "rate", "seed")), run.state, run.reason]
        for run in lost
    ]


def _setting_names(settings: Sequence[Setting]) -> list[str]:
    return ["setting"] if len(settings) > 1 else []


def _saturated(point: Point) -> str:
    flags = point.saturated
    if len(point.runs) > 1 and any(flags):
        return f"{sum(flags)} of {len(flags)}"
    return _text(any(flags) if flags else None)


def _cell(estimate: Estimate | None, style: str) -> Cell:
    if estimate is None:
        return Cell(UNDEFINED)
    mean, low, high = (as_text(value, style) for value in estimate[:3])
    spread = []
    if estimate.low != estimate.high:
        half = as_text(estimate.mean - estimate.low, style)
        spread.append(f"± {half}" if len(estimate.values) >= FEWEST_FOR_INTERVAL else f"{low} to {high}")
    if estimate.is_partial:
        spread.append(f"({len(estimate.values)} of {estimate.num_seeds} seeds)")
    return Cell(mean, " ".join(spread))


def _text(value: object) -> str:
    return as_text(value, undefined=UNDEFINED)


def _markdown_table(names: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    lines = [names, ["---"] * len(names), *body]
    return ["| " + " | ".join(map(_escaped, line)) + " |" for line in lines]


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
