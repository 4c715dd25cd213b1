"""Fields of a record as checked values. All raise `RowError` naming field, value and limit."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvsim.units import MAX_SECONDS, NS_PER_S
from kvsim.workload.base import MAX_TOKENS
from kvsim.workload.formats.row import RowError

Fields = Mapping[str, object]
"""What a record holds: text from a CSV, typed values from JSON and parquet."""

MAX_INTEGER = (1 << 63) - 1
MAX_NAME = 200
_IDS = re.compile(r"[0-9]{1,18}(?: [0-9]{1,18})*")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


def number(fields: Fields, name: str, low: float, high: float, whole: bool) -> int | float:
    """A number in [low, high], in its own type; text counts if it reads as one."""
    value = present(fields, name)
    found = _parse(value) if isinstance(value, str) else value
    if (
        isinstance(found, int | float)
        and not isinstance(found, bool)
        and low <= found <= high
        and (not whole or isinstance(found, int) or found.is_integer())
    ):
        return found
    raise RowError(f"is not a {'whole ' if whole else ''}number from {low:.0f} to {high:.0f}", name, value)


def tokens(fields: Fields, name: str) -> int:
    """A count of tokens."""
    return int(number(fields, name, 0, MAX_TOKENS, whole=True))


def integer(fields: Fields, name: str, low: int = 0, high: int = MAX_INTEGER) -> int:
    """An integer in [low, high]."""
    return int(number(fields, name, low, high, whole=True))


def instant(fields: Fields, name: str, unit_ns: int = NS_PER_S) -> int:
    """An instant in ns from a number of units."""
    return round(number(fields, name, 0, MAX_SECONDS * NS_PER_S / unit_ns, whole=False) * unit_ns)


def text(fields: Fields, name: str) -> str:
    """Any text."""
    value = present(fields, name)
    if not isinstance(value, str):
        raise RowError("is not text", name, value)
    return value


def identifier(fields: Fields, name: str) -> str:
    """A short name or a number, as text."""
    value = present(fields, name)
    named = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(named, str) or not 0 < len(named) <= MAX_NAME or not named.isprintable():
        raise RowError(f"is not a name of 1 to {MAX_NAME} printable characters", name, value)
    return named


def hash_ids(fields: Fields, name: str) -> str:
    """Block ids, a list of integers or such text, as text."""
    value = present(fields, name)
    if isinstance(value, str) and _IDS.fullmatch(value):  # there are millions
        return value
    ids = value.split() if isinstance(value, str) else value
    if not isinstance(ids, list):
        raise RowError("is not a list of integers", name, value)
    if not (set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) <= MAX_INTEGER):  # here too
        for entry in ids:
            _check_id(name, entry)
    return " ".join(map(str, ids))


def _check_id(name: str, entry: object) -> None:
    if isinstance(entry, str):
        good = entry.isascii() and entry.isdigit() and len(entry) <= 19 and int(entry) <= MAX_INTEGER
    else:
        good = type(entry) is int and 0 <= entry <= MAX_INTEGER
    if not good:
        raise RowError(f"is not an integer from 0 to {MAX_INTEGER}", name, entry)


def present(fields: Fields, name: str) -> object:
    """The value of a field that must be there."""
    try:
        return fields[name]
    except KeyError:
        raise RowError(f"{name} is missing") from None


def _parse(value: str) -> int | float | str:
    if value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return float(value) if _NUMBER.fullmatch(value.strip()) else value
