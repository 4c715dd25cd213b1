"""`Records`: what a file holds, whatever its container; lines of text for those that are text."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from kvsim.errors import TraceError
from kvsim.workload.expanded import BUFFER_BYTES, open_expanded
from kvsim.workload.formats.fields import Fields
from kvsim.workload.formats.row import RowError

UTF8_MARK = b"\xef\xbb\xbf"
MAX_RECORD = 16 << 20
"""Bytes of the longest line and characters of the longest record of a JSON array."""

Record = tuple[int, Fields | RowError]
"""Where it stands, counted in `unit`, and what it holds or why it cannot be told."""


class Records(Protocol):
    """An open question to a file: it is read anew every time, in bounded memory.

    Attributes:
        unit: what places are counted in: line, record (from 1) or row (from 0).
    """

    unit: ClassVar[str]

    def names(self) -> list[str]:
        """Column names, or the keys of the first record."""
        ...

    def read(self, required: Sequence[str], optional: Sequence[str]) -> Iterator[Record]:
        """All records; others than these fields may be missing."""
        ...


def read_lines(path: Path, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Number from 1 and bytes of each line, without the mark of UTF-8.

    Raises:
        TraceError: a line longer than `MAX_RECORD`.
    """
    with open_expanded(path, max_bytes) as file:
        lines = io.BufferedReader(file, BUFFER_BYTES)
        number = 1
        while line := lines.readline(MAX_RECORD + 1):
            if len(line) > MAX_RECORD:
                raise TraceError(f"{path}, line {number}: is longer than {MAX_RECORD} bytes")
            yield number, line.removeprefix(UTF8_MARK) if number == 1 else line
            number += 1
