"""The published figures drawn again, the paper's values beside ours. Each function makes its own figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kvsim.plots.colours import MEMORY, SYSTEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 0.38
"""Of a bar; two stand beside each other."""

Points = Sequence[tuple[float, float]]


def latency_curves(
    paper: Mapping[str, Points], ours: Mapping[str, Points], labels: Mapping[str, str], level: float, top: float
) -> Axes:
    """Latency (s/token) over request rate, system -> (rate, latency): the paper's as markers, ours as lines.

    Args:
        labels: system -> what the legend calls it.
        level: latency at which the curves are compared.
        top: where the paper cuts the y axis.
    """
    axes = _axes()
    for system, label in labels.items():
        style = SYSTEMS[system]
        axes.plot(*_columns(paper[system]), style.marker, color=style.light, markersize=5, label=f"{label}, paper")
        axes.plot(*_columns(ours[system]), "-", color=style.light, linewidth=1.3, label=f"{label}, kvsim")
    axes.axhline(level, color="0.7", linewidth=0.8, linestyle=":")
    axes.set_xlim(0, 1.1 * max(rate for points in paper.values() for rate, _ in points))
    axes.set_ylim(0, top)
    axes.set_xlabel("request rate, req/s")
    axes.set_ylabel("mean normalized latency, s/token")
    axes.figure.legend(fontsize=6, ncols=len(labels), loc="outside lower center", columnspacing=1.0, handlelength=1.2)
    return axes


def paired_bars(paper: Mapping[str, float], ours: Mapping[str, float], ylabel: str) -> Axes:
    """A bar of the paper's value and one of ours for each label."""
    axes = _axes()
    for offset, colour, name, values in (
        (-0.5, "0.7", "paper", paper),
        (0.5, SYSTEMS["vllm_paper"].light, "kvsim", ours),
    ):
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
    """Shares in percent, label -> one for each memory class: the paper's stack on the left, ours on the right."""
    axes = _axes()
    for offset, shares in ((-0.5, paper), (0.5, ours)):
        places = [index + offset * (WIDTH + 0.04) for index in range(len(shares))]
        bottom = [0.0] * len(shares)
        for index, kind in enumerate(MEMORY[name] for name in classes):
            heights = [values[index] for values in shares.values()]
            label = kind.label if shares is ours else None
            bars = axes.bar(places, heights, WIDTH, bottom, color=kind.light, label=label)
            axes.bar_label(bars, [f"{height:.1f}" if height >= 3 else "" for height in heights], fontsize=6,
                           label_type="center", color=kind.text_on_light)  # fmt: skip
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_xticks(range(len(paper)), [f"{label}\npaper | kvsim" for label in paper])
    axes.set_ylabel("share of the KV memory, %")
    axes.set_ylim(0, 100)
    axes.figure.legend(fontsize=7, ncols=len(classes), loc="outside upper center", frameon=False)
    return axes


def _columns(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _axes() -> Axes:
    from matplotlib.figure import Figure

    return Figure(figsize=(6.4, 4.2), dpi=150, layout="constrained").add_subplot()
