"""The published figures drawn again, the paper's values beside ours. Each function makes its own figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
"""Told apart by colour-blind readers too (Okabe and Ito)."""

WIDTH = 0.38
"""Of a bar; two stand beside each other."""

Points = Sequence[tuple[float, float]]


def latency_curves(paper: Mapping[str, Points], ours: Mapping[str, Points], level: float, top: float) -> Axes:
    """Latency (s/token) over request rate, curve label -> (rate, latency): the paper's as markers, ours as lines.

    Args:
        level: latency at which the curves are compared.
        top: where the paper cuts the y axis.
    """
    axes = _axes()
    for colour, label in zip(COLOURS, paper, strict=False):
        axes.plot(*_columns(paper[label]), "o", color=colour, markersize=5, label=f"{label}, paper")
        axes.plot(*_columns(ours[label]), "-", color=colour, linewidth=1.3, label=f"{label}, kvsim")
    axes.axhline(level, color="0.7", linewidth=0.8, linestyle=":")
    axes.set_xlim(0, 1.1 * max(rate for points in paper.values() for rate, _ in points))
    axes.set_ylim(0, top)
    axes.set_xlabel("request rate, req/s")
    axes.set_ylabel("mean normalized latency, s/token")
    axes.figure.legend(fontsize=6.5, ncols=len(paper), loc="outside lower center")
    return axes


def paired_bars(paper: Mapping[str, float], ours: Mapping[str, float], ylabel: str) -> Axes:
    """A bar of the paper's value and one of ours for each label."""
    axes = _axes()
    for offset, colour, name, values in ((-0.5, "0.7", "paper", paper), (0.5, COLOURS[0], "kvsim", ours)):
        places = [index + offset * WIDTH for index in range(len(values))]
        bars = axes.bar(places, list(values.values()), WIDTH, color=colour, label=name)
        axes.bar_label(
            bars, [f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" for value in values.values()], fontsize=7
        )
    axes.set_xticks(range(len(paper)), list(paper))
    axes.set_ylabel(ylabel)
    axes.legend(fontsize=8)
    return axes


def stacked_shares(
    paper: Mapping[str, Sequence[float]], ours: Mapping[str, Sequence[float]], classes: Sequence[str]
) -> Axes:
    """Shares in percent, label -> one for each of `classes`: the paper's stack on the left, ours on the right."""
    axes = _axes()
    for offset, shares in ((-0.5, paper), (0.5, ours)):
        places = [index + offset * (WIDTH + 0.04) for index in range(len(shares))]
        bottom = [0.0] * len(shares)
        for index, (colour, name) in enumerate(zip(COLOURS, classes, strict=False)):
            heights = [values[index] for values in shares.values()]
            label = name if shares is ours else None
            bars = axes.bar(places, heights, WIDTH, bottom, color=colour, label=label)
            axes.bar_label(bars, [f"{height:.1f}" if height >= 3 else "" for height in heights], fontsize=6,
                           label_type="center")  # fmt: skip
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_xticks(range(len(paper)), [f"{label}\npaper | kvsim" for label in paper])
    axes.set_ylabel("share of the KV memory, %")
    axes.set_ylim(0, 122)
    axes.legend(fontsize=7, ncols=len(classes), loc="upper center")
    return axes


def _columns(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _axes() -> Axes:
    from matplotlib.figure import Figure

    return Figure(figsize=(6.4, 4.2), dpi=150, layout="constrained").add_subplot()
