"""Colours and markers: a system looks the same in every figure, with any colour vision, on light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Style(NamedTuple):
    """How a system is drawn.

    Attributes:
        light, dark: colour on a light and on a dark page, ``#rrggbb``, at least 3:1 against it (WCAG 1.4.11).
        symbol: Plotly's name of the marker.
        marker: matplotlib's.
    """

    light: str
    dark: str
    symbol: str
    marker: str


SYSTEMS = {
    "fastertransformer": Style("#7d8288", "#7f858b", "circle", "o"),
    "orca_max": Style("#b83a0a", "#f4511e", "triangle-up", "^"),
    "orca_pow2": Style("#8a2c86", "#e48fd6", "triangle-down", "v"),
    "orca_oracle": Style("#0a5c40", "#2fae80", "diamond", "D"),
    "vllm_paper": Style("#0b57d0", "#5b8def", "square", "s"),
    "vllm_v0": Style("#1b94d6", "#8fd3ff", "pentagon", "p"),
    "vllm_v1": Style("#ab8500", "#f0c53e", "star", "*"),
    "sarathi": Style("#7c2935", "#d0697d", "hexagon", "h"),
    "fastserve": Style("#4b2fae", "#a99bff", "cross", "P"),
    "vattention": Style("#5c8a1e", "#a8cf5a", "x", "X"),
    "pensieve": Style("#0d7d78", "#45c9c0", "triangle-left", "<"),
    "paged_eviction": Style("#d9695f", "#ff9e94", "triangle-right", ">"),
}
"""The presets, in the order in which figures and tables list them."""


SHADES = (0.0, 0.28, 0.5)
"""How far variants of a system go from its colour, away from that of the page."""


class Kind(NamedTuple):
    """How a memory class is drawn: colours as in `Style`, and that of text on the light one."""

    label: str
    light: str
    dark: str
    text_on_light: str = "black"


MEMORY = {
    "token_state": Kind("token state", "#1d5fa8", "#4c8fdb", "white"),
    "cached": Kind("cached", "#5aa9d6", "#8cc8ee"),
    "reserved": Kind("reserved", "#d6a419", "#e0b13a"),
    "internal": Kind("internal fragmentation", "#c2410c", "#f07a3f", "white"),
    "rounding": Kind("rounding", "#7a4a21", "#b58560", "white"),
    "holes": Kind("holes", "#7b3f98", "#b684cf", "white"),
    "swap_in_flight": Kind("swap in flight", "#0f766e", "#3fb5a8", "white"),
    "external": Kind("external and free", "#c3c8ce", "#59616b"),
    "free_unusable": Kind("external fragmentation", "#9aa1a9", "#79828d"),
    "free_usable": Kind("free", "#e3e6e9", "#2c323a"),
}
"""Memory classes in the order in which they are stacked; `external` is all that is none of the paper's other three."""


def styles(systems: Iterable[str]) -> dict[str, Style]:
    """The style of every system, presets first; a system that is no preset takes one that no other one uses."""
    names = set(systems)
    known = {name: style for name, style in SYSTEMS.items() if name in names}
    spare = [style for name, style in reversed(SYSTEMS.items()) if name not in names] or [*SYSTEMS.values()]
    others = sorted(names - known.keys())
    return known | {name: spare[index % len(spare)] for index, name in enumerate(others)}


def variant_style(style: Style, variant: int) -> Style:
    """How variant 0, 1, ... of a system is drawn: 0 as the system itself, others in another shade and marker."""
    all_styles = [*SYSTEMS.values()]
    marker = all_styles[(all_styles.index(style) + variant) % len(all_styles)]
    share = SHADES[variant % len(SHADES)]
    return Style(_mixed(style.light, 0, share), _mixed(style.dark, 255, share), marker.symbol, marker.marker)


def _mixed(colour: str, other: int, share: float) -> str:
    parts = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(part + (other - part) * share):02x}" for part in parts)


def dark_colours() -> dict[str, str]:
    """Dark colour for every light one."""
    variants = [variant_style(style, number) for style in SYSTEMS.values() for number in range(len(SHADES))]
    pairs = [(style.light, style.dark) for style in variants]
    pairs += [(kind.light, kind.dark) for kind in MEMORY.values()]
    return dict(pairs)
