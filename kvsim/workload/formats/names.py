"""Names of a file's columns or keys, checked and listed for messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvsim.errors import TraceError

MAX_LIST = 100
"""Characters of a list of names in a message."""


def check_columns(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    """TraceError unless each wanted column is there once."""
    found = list_names(names)
    for name in wanted:
        if name not in names:
            raise TraceError(f"{path}: column {name} is missing; the file has {found}")
        if names.count(name) > 1:
            raise TraceError(f"{path}: column {name} is there more than once; the file has {found}")


def list_names(names: Sequence[str]) -> str:
    """The first names, for a message; nothing in them reaches a terminal as a control character."""
    line = ", ".join(name[: MAX_LIST + 1] for name in names[:MAX_LIST])
    if len(line) > MAX_LIST:
        line = f"{line[: MAX_LIST - 3]}..."
    return "".join(character if character.isprintable() else "?" for character in line)
