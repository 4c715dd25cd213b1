"""Names of a file's columns or keys, checked and listed for messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvsim.errors import TraceError


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
    line = ", ".join(name[:40] for name in names[:12])
    return "".join(character if character.isprintable() else "?" for character in line)
