"""Checks of what a user gives; each error names value, limit and, where the limit does not say it, the remedy."""

from __future__ import annotations

from collections.abc import Collection

from kvsim.errors import ConfigError

MAX_SHOWN = 60
"""Characters of a value in a message."""


def shown(value: object) -> str:
    """`value` for a message, cut with an ellipsis."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN + 2 else f"{text[: MAX_SHOWN - 2]}...{text[-1]}"


def check_number(name: str, value: object, low: float, high: float, remedy: str = "") -> float:
    """`value` as a float in [low, high]; text, bool, NaN and infinities are refused."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{name}={shown(value)}: must be a number from {low:g} to {high:g}{_after(remedy)}")
    return float(value)


def check_integer(name: str, value: object, low: int = 1, high: int = 10**9, remedy: str = "") -> int:
    """`value` as an int in [low, high]; text, bool and floats are refused."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name}={shown(value)}: must be a whole number from {low} to {high}{_after(remedy)}")
    return value


def check_flag(name: str, value: object) -> bool:
    """`value` if it is true or false; numbers and text are refused."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={shown(value)}: must be true or false")
    return value


def _after(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""


def check_choice(name: str, value: object, choices: Collection[str]) -> str:
    """`value` if it is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{name}={shown(value)}: must be one of {', '.join(choices)}")
    return value
