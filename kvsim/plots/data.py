"""What the figures of runs show, as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.plots.colours import Style

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class Legend(NamedTuple):
    """Whose data it is: what is read, colour and marker, and which dashes (0, 1, ...) tell variants of one apart.

    The style is the variant's own already.
    """

    label: str
    style: Style
    variant: int = 0


class Curve(NamedTuple):
    """A metric against what was varied; [points] columns, x ascending, NaN where the metric is undefined.

    Attributes:
        value: mean over seeds.
        low, high: least and greatest seed.
        saturated: whether any seed saturated.
    """

    legend: Legend
    x: FloatArray
    value: FloatArray
    low: FloatArray
    high: FloatArray
    saturated: BoolArray


class Split(NamedTuple):
    """Where the slots of the pool are on average: fractions by memory class, adding up to 1."""

    legend: Legend
    shares: Mapping[str, float]


class Distribution(NamedTuple):
    """Cumulative distribution: a fraction ``fraction[i]`` of the requests has a value of at most ``value[i]``."""

    legend: Legend
    value: FloatArray
    fraction: FloatArray


class Timeline(NamedTuple):
    """One run over time; [rows] columns, each row holding from its time to the next row's.

    Attributes:
        memory: fraction of the pool by memory class, classes that never occur left out; adds up to 1 in every row.
        waiting, running: requests.
        warmup_s: end of the warm-up.
    """

    legend: Legend
    time_s: FloatArray
    memory: Mapping[str, FloatArray]
    waiting: FloatArray
    running: FloatArray
    warmup_s: float
