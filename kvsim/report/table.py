"""The table of all points: rows of plain numbers, and the same rows as text for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from kvsim.report.estimate import FEWEST_FOR_INTERVAL, Estimate
from kvsim.report.facts import SETTING_NAMES, swept_keys
from kvsim.report.points import RATE, Point, Series, Setting
from kvsim.report.runs import LostRun
from kvsim.table import METRICS, as_text

Row = dict[str, str | int | float | None]

LATENCIES = (
    "mean_normalized_latency",
    "median_ttft_ms",
    "p99_ttft_ms",
    "median_tpot_ms",
    "p99_tpot_ms",
    "median_e2el_ms",
    "p99_e2el_ms",
)
COLUMNS = (
    *LATENCIES,
    "request_goodput",
    "request_throughput",
    "output_throughput",
    "completed",
    "rejected",
    "failed",
    "unfinished",
    "mean_batch_size",
    "kv_token_state_frac",
    "kv_reserved_frac",
    "kv_internal_frac",
    "kv_external_frac",
    "num_preemptions",
)
"""Metrics of a point, in order."""
OPTIONAL = ("request_goodput",)
"""Metrics that a run has only where it was asked for them."""

UNDEFINED = "–"
MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\\": "\\\\", "|": "\\|", "[": "\\[", "`": "\\`"}
"""What would be read as more than text, and how it is written in Markdown."""
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
    found: list[Row] = []
    for setting in settings:
        for series, point in ordered_points(setting):
            row: Row = {
                "system": series.system,
                "model": setting.model,
                "hardware": setting.hardware,
                "workload": setting.workload,
                RATE: point.rate,
                **{key: _plain(point.identity.get(key)) for key in swept_keys(settings)},
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


class Table(NamedTuple):
    """The points as text.

    Attributes:
        header: headings; the first `num_keys` columns say which point a row is, the first of them which system.
        rows: of cells.
        saturated: whether any run of the row's saturated.
        note: what was left out since it says the same of every point.
    """

    header: list[str]
    num_keys: int
    rows: list[list[Cell]]
    saturated: list[bool]
    note: str


def table(settings: Sequence[Setting]) -> Table:
    """The points as text, without the columns that have nothing to tell."""
    places = [(setting, series, point) for setting in settings for series, point in ordered_points(setting)]
    points = [point for _, _, point in places]
    columns: dict[str, list[Cell]] = {"system": [Cell(series.system) for _, series, _ in places]}
    for name in SETTING_NAMES:
        if len({getattr(setting, name) for setting in settings}) > 1:
            columns[name] = [Cell(getattr(setting, name)) for setting, _, _ in places]
    for key in swept_keys(settings):
        columns[key] = [Cell(_text(_plain(point.identity.get(key)))) for point in points]
    rates = [Cell(_text(point.rate)) for point in points]
    if len(set(rates)) > 1 or len(columns) == 1:
        columns[METRICS[RATE].label] = rates
    num_keys = len(columns)
    zero, same = [], []
    for metric in COLUMNS:
        label, style = METRICS[metric]
        estimates = [point.estimate(metric) for point in points]
        if metric in OPTIONAL and not any(estimates):
            continue
        if estimates and all(estimate and not any(estimate.values) for estimate in estimates):
            zero.append(label)
            continue
        columns[label] = [_cell(estimate, style) for estimate in estimates]
        if metric == LATENCIES[-1]:
            flags = [Cell(_saturated(point)) for point in points]
            if all(flag.text == "no" for flag in flags):
                same.append("No run saturated.")
            else:
                columns["saturated"] = flags
    if zero:
        same.append(f"0 in every run: {', '.join(zero)}.")
    counts = [Cell(str(len(point.runs))) for point in points]
    if len(set(counts)) > 1:
        columns["seeds"] = counts
    elif counts:
        same.append(f"{counts[0]} seed{'s' * (counts[0].text != '1')} a point.")
    body = [list(row) for row in zip(*columns.values(), strict=True)]
    return Table(list(columns), num_keys, body, [any(point.saturated) for point in points], " ".join(same))


def to_csv(settings: Sequence[Setting]) -> str:
    """The rows as CSV, numbers in full, empty where undefined."""
    found = rows(settings)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(found[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return stream.getvalue()


def to_markdown(settings: Sequence[Setting], lost: Sequence[LostRun], facts: Sequence[tuple[str, str]]) -> str:
    """Facts, the table, and the runs left out."""
    lines = ["# kvsim report", "", *(f"- {_escaped(name)}: {_escaped(value)}" for name, value in facts), ""]
    shown = table(settings)
    lines += _markdown_table(shown.header, [[str(cell) for cell in row] for row in shown.rows])
    lines += ["", shown.note] if shown.note else []
    if lost:
        lines += ["", "## Runs left out", "", *_markdown_table(LEFT_OUT, lost_cells(lost))]
    return "\n".join(lines) + "\n"


def lost_cells(lost: Sequence[LostRun]) -> list[list[str]]:
    """The runs left out as text, under `LEFT_OUT`."""
    return [
        [run.name, *(_text(run.labels.get(label)) for label in ("system", "rate", "seed")), run.state, run.reason]
        for run in lost
    ]


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


def _plain(value: object) -> str | int | float | None:
    return value if isinstance(value, str | int | float | None) else str(value)


def _text(value: object) -> str:
    return as_text(value, undefined=UNDEFINED)


def _markdown_table(names: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    lines = [names, ["---"] * len(names), *body]
    return ["| " + " | ".join(map(_escaped, line)) + " |" for line in lines]


def _escaped(text: str) -> str:
    for character, escape in MARKUP.items():
        text = text.replace(character, escape)
    return " ".join(text.split())
