"""Predicted against measured step times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kvsim.plots.colours import styles
from kvsim.plots.runs import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

StepTimes = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Predicted and measured, ms."""

MOST = 4000
"""Points of a system; more would hide each other."""


def step_times(times: Mapping[str, StepTimes], title: str) -> Axes:
    """A point a step, logarithmic, with the line where prediction and measurement agree."""
    axes = new_axes(4.8, 4.8)
    known = styles(times)
    low, high = np.inf, 0.0
    for system, (predicted, measured) in times.items():
        every = -(-len(measured) // MOST)
        style = known[system]
        axes.plot(
            measured[::every], predicted[::every], style.marker, color=style.light, markersize=3, alpha=0.4,
            markeredgewidth=0, label=system, rasterized=True,
        )  # fmt: skip
        low = min(low, float(measured.min()), float(predicted.min()))
        high = max(high, float(measured.max()), float(predicted.max()))
    axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured step, ms")
    axes.set_ylabel("predicted step, ms")
    axes.set_title(title, fontsize=7)
    axes.legend(fontsize=7, markerscale=2)
    return axes
