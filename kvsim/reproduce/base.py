"""What a reproduced figure is: rows of published and simulated values with bands, and a drawing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kvsim.reproduce.runner import Runner


class Verdict(StrEnum):
    """How a value of ours compares."""

    PASS = "pass"
    MISS = "MISS"
    REPORTED = "reported"


class Band(NamedTuple):
    """Values that agree with the paper, ends included; an infinite end is open."""

    low: float = -math.inf
    high: float = math.inf

    @classmethod
    def absolute(cls, value: float, tolerance: float) -> Self:
        """`value` give or take `tolerance`."""
        return cls(value - tolerance, value + tolerance)

    @classmethod
    def relative(cls, value: float, fraction: float) -> Self:
        """`value`, above 0, give or take a fraction of it."""
        return cls.absolute(value, fraction * value)


@dataclass(frozen=True)
class Row:
    """A quantity.

    Attributes:
        paper: the published value; None: outside the published axes.
        ours: the simulated value; None: there is none.
        unit: ``%`` are compared in points, everything else relatively.
        band: where ours must lie; None: only reported.
        digits: after the decimal point.
        note: why the quantity is only reported, why it misses, or what to know about it.
    """

    quantity: str
    paper: float | None
    ours: float | None
    unit: str
    band: Band | None
    digits: int = 2
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """Pass or miss; reported where there is no band."""
        if self.band is None:
            return Verdict.REPORTED
        inside = self.ours is not None and self.band.low <= self.ours <= self.band.high
        return Verdict.PASS if inside else Verdict.MISS

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.paper is None or self.ours is None else self.ours - self.paper

    @property
    def remark(self) -> str:
        """The note; a miss always has one."""
        return self.note or ("cause unknown" if self.verdict is Verdict.MISS else "")


class Marker(NamedTuple):
    """A point of a curve: request rate, req/s, and latency, s/token; `source` is paper or kvsim."""

    curve: str
    source: str
    rate: float
    latency: float


@dataclass(frozen=True)
class Outcome:
    """A figure reproduced: its rows, how to draw it, and the points of its curves if it has any."""

    rows: list[Row]
    draw: Callable[[], Axes]
    markers: list[Marker] = field(default_factory=list)


@dataclass(frozen=True)
class Figure:
    """A published figure or table; `reproduce` runs what it needs."""

    name: str
    title: str
    source: str
    reproduce: Callable[[Runner], Outcome]
