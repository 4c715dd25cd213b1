"""A figure of the page as Plotly reads it: plain dictionaries in light colours, which the page swaps in the dark."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from kvsim.plots.colours import MEMORY
from kvsim.plots.data import FloatArray, Legend
from kvsim.plots.runs import LABEL_WIDTH

Spec = dict[str, Any]

DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot")
"""Of variants; dotted is another metric."""
LOGARITHMIC: Spec = {"type": "log", "tickformat": ",.9~g", "nticks": 3}
"""An axis: where it is dense only decades have ticks, and the others are labelled in full."""
GLYPHS = {
    "circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "triangle-down": "▼", "triangle-left": "◀",
    "triangle-right": "▶", "pentagon": "⬟", "hexagon": "⬢", "star": "★", "cross": "✚", "x": "✖",
}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """An entry of a figure's legend; `group` names the traces that it switches."""

    group: str
    glyph: str
    light: str
    dark: str
    dashes: str = "solid"


@dataclass(frozen=True)
class Plot:
    """One drawing.

    Attributes:
        label: describes it to who cannot see it.
        spec: JSON, its data one list of traces a choice.
        tall: it has two panels.
        bars: horizontal bars, which its height depends on.
    """

    label: str
    spec: str
    tall: bool = False
    bars: int = 0


@dataclass(frozen=True)
class Figure:
    """A title, one or more drawings side by side, a caption; `choices` is a menu over their data."""

    title: str
    plots: Sequence[Plot]
    keys: Sequence[Key]
    caption: str
    choices: Sequence[str] = ()
    chosen: int = 0
    choices_label: str = ""


def dash(legend: Legend) -> str:
    """The dashes of a series."""
    return DASHES[legend.variant % len(DASHES)]


def series_keys(legends: Iterable[Legend]) -> list[Key]:
    """An entry a series."""
    return [Key(one.label, GLYPHS[one.style.symbol], one.style.light, one.style.dark, dash(one)) for one in legends]


def memory_keys(names: Iterable[str]) -> list[Key]:
    """An entry a memory class."""
    return [Key(MEMORY[name].label, "■", MEMORY[name].light, MEMORY[name].dark, "") for name in names]


def broken(label: str) -> str:
    """A label as Plotly reads it, in lines that a phone has room for."""
    return "<br>".join(map(escape, textwrap.wrap(label, LABEL_WIDTH)))


def numbers(values: FloatArray | Sequence[float], digits: int = 6) -> list[float | None]:
    """Rounded to what can be seen; NaN becomes null."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]


def spec(data: Sequence[Sequence[Spec]], layout: Spec) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps({"data": data, "layout": layout}, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
