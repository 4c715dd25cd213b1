"""JSON: objects on lines of their own or in one array."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from kvsim.errors import TraceError
from kvsim.workload.expanded import BUFFER_BYTES, open_expanded
from kvsim.workload.formats.array import ArrayReader
from kvsim.workload.formats.record import MAX_RECORD, Record, read_lines
from kvsim.workload.formats.row import RowError


class _Json(ABC):
    unit: ClassVar[str]

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes

    def names(self) -> list[str]:
        """See `Records`."""
        first: str | None = None
        for number, fields in self.read((), ()):
            if not isinstance(fields, RowError):
                return list(fields)
            first = first or f"{self._path}, {self.unit} {number}: {fields}"
        raise TraceError(first or f"{self._path}: holds no JSON object")

    @abstractmethod
    def read(self, required: Sequence[str], optional: Sequence[str]) -> Iterator[Record]:
        """See `Records`."""


class JsonLines(_Json):
    """Objects of which each stands on a line of its own."""

    unit: ClassVar[str] = "line"

    def read(self, required: Sequence[str], optional: Sequence[str]) -> Iterator[Record]:
        """See `Records`."""
        for number, line in read_lines(self._path, self._max_bytes):
            if line.isspace():
                continue
            try:
                value = json.loads(line.decode())
            except UnicodeDecodeError:
                yield number, RowError("not UTF-8 text")
            except RecursionError:
                yield number, RowError("nested too deeply")
            except json.JSONDecodeError as error:
                yield number, RowError(f"not a JSON object on a line of its own: {error.msg}")
            except ValueError:  # Python's limit on the digits of a number
                yield number, RowError("a number has thousands of digits")
            else:
                yield number, value if isinstance(value, dict) else RowError("not a JSON object")


class JsonArray(_Json):
    """Objects of one array."""

    unit: ClassVar[str] = "record"

    def read(self, required: Sequence[str], optional: Sequence[str]) -> Iterator[Record]:
        """See `Records`."""
        with open_expanded(self._path, self._max_bytes) as file:
            text = io.TextIOWrapper(io.BufferedReader(file, BUFFER_BYTES), encoding="utf-8-sig", newline="")
            for number, value in enumerate(ArrayReader(text.read, self._path, MAX_RECORD), start=1):
                yield number, value if isinstance(value, dict) else RowError("not a JSON object")
