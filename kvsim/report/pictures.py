"""The figures as PNG files."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.plots import runs
from kvsim.report.charts import Charts, axis_label, place_text
from kvsim.report.samples import LATENCIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEAD_BYTES = 4096
"""Of a PNG file; what it says of itself stands before its pixels."""
MOST_CHARACTERS = 80
"""Of a part of a file name; a longer one is cut and ends in a digest. A name has two parts and at most 255 bytes."""


def pictures(charts: Sequence[Charts]) -> Iterator[tuple[str, bytes]]:
    """File name and PNG of every figure; names begin with the setting where there are several."""
    taken: set[str] = set()
    for one in charts:
        prefix = f"{_slug(one.setting.title)}-" if len(charts) > 1 else ""
        for name, axes in _figures(one):
            unique = name = f"{prefix}{name}"
            number = 2
            while unique in taken:
                unique, number = f"{name}-{number}", number + 1
            taken.add(unique)
            yield f"{unique}.png", _png(axes, _mark(f"{unique}.png"))


def is_picture(path: Path) -> bool:
    """Whether a report wrote this file, under this name."""
    try:
        with path.open("rb") as file:
            return b"Software\0" + _mark(path.name).encode() in file.read(HEAD_BYTES)
    except OSError:
        return False


def _mark(name: str) -> str:
    """What a file of this name says of its origin; a copy under another name is no longer ours."""
    return f"kvsim report, {name}"


def _figures(charts: Charts) -> Iterator[tuple[str, Axes]]:
    curves, xlabel = charts.curves, axis_label(charts.setting)
    if any(len(curve.x) for curve in curves["mean_batch_size"]):
        yield "normalized_latency", runs.normalized_latency(curves["mean_normalized_latency"], xlabel)
        for name in ("ttft", "tpot"):
            median, p99 = curves[f"median_{name}_ms"], curves[f"p99_{name}_ms"]
            yield name, runs.latency_percentiles(median, p99, name.upper(), xlabel)
        yield "batch_size", runs.batch_size(curves["mean_batch_size"], xlabel)
    if splits := charts.splits[charts.place]:
        yield "kv_split", _placed(runs.kv_split(splits), charts, pad=22)
    for name in LATENCIES:
        if parts := charts.distributions[charts.place][name]:
            yield f"{name.lower()}_cdf", _placed(runs.latency_cdf(parts, name), charts)
    for timeline in charts.timelines:
        axes = runs.new_axes(height=5)
        upper, lower = axes.figure.subplots(2, sharex=True, height_ratios=(2, 1))
        axes.remove()
        runs.memory_over_time(timeline, upper).set_xlabel("")
        runs.queue_over_time(timeline, lower)
        yield f"timeline-{_slug(timeline.legend.label)}", upper


def _placed(axes: Axes, charts: Charts, pad: float = 6) -> Axes:
    axes.set_title(f"At {place_text(charts.setting, charts.place)}", fontsize=9, loc="left", y=1, pad=pad)
    return axes


def _png(axes: Axes, mark: str) -> bytes:
    stream = io.BytesIO()
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.savefig(stream, format="png", metadata={"Software": mark})
    return stream.getvalue()


def _slug(text: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-")
    if len(slug) <= MOST_CHARACTERS:
        return slug
    return f"{slug[: MOST_CHARACTERS - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
