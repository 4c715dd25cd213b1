"""Figures that compare runs. Each takes its data and optionally the axes to draw on, and returns the axes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kvsim.plots.colours import MEMORY
from kvsim.plots.data import Curve, Distribution, Split, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES = ("-", "--", "-.", (0, (8, 3)), (0, (8, 2, 2, 2)))
DOTTED = (":",)
LABELLED_PERCENT = 6
"""Shares below it have no room for their number."""
LABEL_WIDTH, LABEL_LINES = 34, 3
"""Characters and lines of a label: a longer one would leave no room for the data."""
MOST_INSIDE = 5
"""Lines of a legend that may lie on the data; a longer one stands below."""
TAIL = 0.001
"""What a distribution's axis leaves out on either side, so that a few requests do not squeeze the others."""


def new_axes(width: float = 6.4, height: float = 4.0) -> Axes:
    """Axes alone on a figure of this size in inches; no window, no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", dpi=150).add_subplot()


def normalized_latency(curves: Sequence[Curve], xlabel: str, axes: Axes | None = None) -> Axes:
    """Mean normalized latency, logarithmic (vLLM paper, Figure 12)."""
    axes = axes or new_axes()
    _draw_curves(axes, curves)
    axes.set_yscale("log")
    return _finish(axes, xlabel, "Mean normalized latency, s/token")


def latency_percentiles(
    median: Sequence[Curve], p99: Sequence[Curve], name: str, xlabel: str, axes: Axes | None = None
) -> Axes:
    """Median (full lines) and 99th percentile (dotted) of the latency `name`, logarithmic."""
    axes = axes or new_axes()
    _draw_curves(axes, median)
    _draw_curves(axes, p99, dashes=DOTTED, labelled=False)
    axes.set_yscale("log")
    return _finish(axes, xlabel, f"{name}, ms: median, p99 dotted")


def batch_size(curves: Sequence[Curve], xlabel: str, axes: Axes | None = None) -> Axes:
    """Mean number of sequences in a batch."""
    axes = axes or new_axes()
    _draw_curves(axes, curves)
    axes.set_ylim(bottom=0)
    return _finish(axes, xlabel, "Mean batch, sequences")


def kv_split(splits: Sequence[Split], axes: Axes | None = None) -> Axes:
    """Where the KV memory is on average, one stacked bar a system (vLLM paper, Figure 2)."""
    labels = [wrapped(split.legend.label) for split in splits]
    axes = axes or new_axes(height=1.4 + 0.4 * len(splits) + 0.15 * sum(label.count("\n") for label in labels))
    rows = range(len(splits))
    left = np.zeros(len(splits))
    for name in splits[0].shares:
        kind = MEMORY[name]
        width = np.array([100 * split.shares[name] for split in splits])
        axes.barh(rows, width, left=left, color=kind.light, label=kind.label, edgecolor="white")
        for row, share in enumerate(width):
            if share >= LABELLED_PERCENT:
                middle = left[row] + share / 2
                axes.text(middle, row, f"{share:.0f}", ha="center", va="center", color=kind.text_on_light, size=8)
        left += width
    axes.set_yticks(rows, labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("KV memory, % of the pool")
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1), ncols=4, frameon=False, fontsize=7, columnspacing=1)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def latency_cdf(distributions: Sequence[Distribution], name: str, axes: Axes | None = None) -> Axes:
    """Cumulative distribution of the latency `name` over requests, logarithmic in ms."""
    axes = axes or new_axes()
    for part in distributions:
        legend = part.legend
        dash = DASHES[legend.variant % len(DASHES)]
        axes.plot(part.value, part.fraction, linestyle=dash, color=legend.style.light, label=wrapped(legend.label))
    axes.set_xscale("log")
    axes.set_ylim(0, 1)
    if bounds := central_range(distributions):
        axes.set_xlim(*bounds)
    return _finish(axes, f"{name}, ms", "Fraction of requests")


def memory_over_time(timeline: Timeline, axes: Axes | None = None) -> Axes:
    """Memory classes of one run, stacked, over time."""
    axes = axes or new_axes()
    kinds = [MEMORY[name] for name in timeline.memory]
    axes.stackplot(
        timeline.time_s,
        [100 * share for share in timeline.memory.values()],
        step="post",
        colors=[kind.light for kind in kinds],
        labels=[kind.label for kind in kinds],
        linewidth=0,
    )
    axes.set_ylim(0, 100)
    axes.set_title(wrapped(timeline.legend.label, 2 * LABEL_WIDTH), fontsize=9, loc="left", pad=20)
    _finish(axes, "Time, s", "KV memory, % of the pool")
    return _finish_timeline(axes, timeline)


def queue_over_time(timeline: Timeline, axes: Axes | None = None) -> Axes:
    """Requests waiting (dotted) and running in one run over time."""
    axes = axes or new_axes()
    colour = timeline.legend.style.light
    axes.step(timeline.time_s, timeline.running, where="post", color=colour, linewidth=1, label="running")
    axes.step(timeline.time_s, timeline.waiting, ":", where="post", color=colour, linewidth=1.4, label="waiting")
    axes.set_ylim(bottom=0)
    _finish(axes, "Time, s", "Requests")
    return _finish_timeline(axes, timeline)


def _draw_curves(axes: Axes, curves: Sequence[Curve], dashes: Sequence[object] = DASHES, labelled: bool = True) -> None:
    for curve in curves:
        style, dash = curve.legend.style, dashes[curve.legend.variant % len(dashes)]
        look = {"color": style.light, "marker": style.marker, "markersize": 5}
        label = wrapped(curve.legend.label) if labelled else None
        axes.plot(curve.x, curve.value, linestyle=dash, label=label, **look)  # type: ignore[arg-type]
        hollow = curve.saturated
        axes.plot(curve.x[hollow], curve.value[hollow], linestyle="none", mfc="white", **look)  # type: ignore[arg-type]
        if (curve.high > curve.low).any():
            axes.fill_between(curve.x, curve.low, curve.high, color=style.light, alpha=0.15, linewidth=0)


def _finish(axes: Axes, xlabel: str, ylabel: str) -> Axes:
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    lines = sum(1 + label.count("\n") for label in labels)
    figure = axes.get_figure(root=True)
    if lines <= MOST_INSIDE or figure is None or len(figure.axes) > 1:
        axes.legend(frameon=False, fontsize=8)
    else:
        figure.set_figheight(figure.get_figheight() + 0.16 * (lines / 2 + 1))
        figure.legend(handles, labels, frameon=False, fontsize=8, ncols=2, loc="outside lower center")
    return axes


def wrapped(label: str, width: int = LABEL_WIDTH) -> str:
    """A label in lines that a figure has room for."""
    lines = textwrap.wrap(label, width, max_lines=LABEL_LINES, placeholder=" …")
    return "\n".join(lines).replace("$", r"\$")  # two of them would begin and end a formula


def central_range(distributions: Sequence[Distribution]) -> tuple[float, float] | None:
    """Least 0.1 % and greatest 99.9 % quantile of all distributions; None where no logarithmic axis has both."""
    ends = [np.interp((TAIL, 1 - TAIL), part.fraction, part.value) for part in distributions]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    return (float(low), float(high)) if 0 < low < high else None


def _finish_timeline(axes: Axes, timeline: Timeline) -> Axes:
    axes.set_xlim(timeline.time_s[0], timeline.time_s[-1])
    if timeline.warmup_s:
        axes.axvline(timeline.warmup_s, color="black", linewidth=0.8, linestyle="--")
    axes.legend(frameon=False, fontsize=7, ncols=5, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0)
    return axes
