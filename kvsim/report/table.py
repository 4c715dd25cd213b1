"""The table of all points: rows of plain numbers, and the same rows as text for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from kvsim.report.estimate import FEWEST_FOR_INTERVAL, Estimate
from kvsim.report.points import RATE, Point, Series, Setting
from kvsim.report.runs import LostRun

Row = dict[str, str | int | float | None]


class Column(NamedTuple):
    """A metric, its heading and the format of its numbers."""

    metric: str
    label: str
    style: str


MS = "ms"
"""A format: one decimal below a second, none above."""

COLUMNS = (
    Column("completed", "completed", ",.0f"),
    Column("rejected", "rejected", ",.0f"),
    Column("failed", "failed", ",.0f"),
    Column("unfinished", "unfinished", ",.0f"),
    Column("request_throughput", "requests/s", ".3f"),
    Column("output_throughput", "output tokens/s", ",.1f"),
    Column("mean_normalized_latency", "latency, s/token", ".4f"),
    Column("median_ttft_ms", "TTFT p50, ms", MS),
    Column("p99_ttft_ms", "TTFT p99, ms", MS),
    Column("median_tpot_ms", "TPOT p50, ms", MS),
    Column("p99_tpot_ms", "TPOT p99, ms", MS),
    Column("median_e2el_ms", "E2EL p50, ms", MS),
    Column("p99_e2el_ms", "E2EL p99, ms", MS),
    Column("mean_batch_size", "batch, sequences", ".2f"),
    Column("kv_token_state_frac", "KV token state", ".1%"),
    Column("kv_reserved_frac", "KV reserved", ".1%"),
    Column("kv_internal_frac", "KV internal", ".1%"),
    Column("kv_external_frac", "KV external and free", ".1%"),
    Column("num_preemptions", "preemptions", ",.0f"),
)
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
    """A flat row a point: means over seeds, with `metric`_low and `metric`_high as `Estimate` defines them."""
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
                "saturated_runs": point.num_saturated,
            }
            for column in COLUMNS:
                estimate = point.estimate(column.metric)
                for name, value in zip(("", "_low", "_high"), (estimate or (None,) * 3)[:3], strict=True):
                    row[f"{column.metric}{name}"] = value
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
        *(c.label for c in COLUMNS),
    ]


def cells(settings: Sequence[Setting]) -> list[list[Cell]]:
    """The points as text."""
    found = []
    axes = sorted({setting.axis for setting in settings} - {RATE})
    for setting in settings:
        for series, point in ordered_points(setting):
            places = [Cell(_plain(point.x) if axis == setting.axis else "–") for axis in axes]
            found.append(
                [
                    *(Cell(setting.title) for _ in _setting_names(settings)),
                    Cell(series.legend.label),
                    Cell(_plain(point.rate)),
                    *places,
                    Cell(str(len(point.runs))),
                    Cell(_saturated(point)),
                    *(_cell(point.estimate(column.metric), column.style) for column in COLUMNS),
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
        [run.name, *(_plain(run.labels.get(label)) for label in ("system", "rate", "seed")), run.state, run.reason]
        for run in lost
    ]


def _setting_names(settings: Sequence[Setting]) -> list[str]:
    return ["setting"] if len(settings) > 1 else []


def _saturated(point: Point) -> str:
    if len(point.runs) > 1 and point.num_saturated:
        return f"{point.num_saturated} of {len(point.runs)}"
    return "yes" if point.num_saturated else "no"


def _cell(estimate: Estimate | None, style: str) -> Cell:
    if estimate is None:
        return Cell("–")
    text = _number(estimate.mean, style)
    if len(estimate.values) == 1 or estimate.low == estimate.high:
        return Cell(text)
    if len(estimate.values) < FEWEST_FOR_INTERVAL:
        return Cell(text, f"{_number(estimate.low, style)} to {_number(estimate.high, style)}")
    return Cell(text, f"± {_number(estimate.mean - estimate.low, style)}")


def _number(value: float, style: str) -> str:
    return format(value, (",.1f" if abs(value) < 1000 else ",.0f") if style == MS else style)


def _plain(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _markdown_table(names: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    lines = [names, ["---"] * len(names), *body]
    return ["| " + " | ".join(map(_escaped, line)) + " |" for line in lines]


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
