"""`CsvLines`: the rows of a CSV under its header."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from kvsim.errors import TraceError
from kvsim.workload.formats.names import check_columns
from kvsim.workload.formats.record import MAX_RECORD, Record, read_lines
from kvsim.workload.formats.row import RowError


class CsvLines:
    """Rows of a CSV under its header; values are text."""

    unit: ClassVar[str] = "line"

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes

    def names(self) -> list[str]:
        """See `Records`."""
        for number, header in self._rows():
            if isinstance(header, RowError):
                raise TraceError(f"{self._path}, line {number}: {header}")
            return header
        raise TraceError(f"{self._path}: is empty; the first line must be a header")

    def read(self, required: Sequence[str], optional: Sequence[str]) -> Iterator[Record]:
        """See `Records`."""
        names = self.names()
        check_columns(self._path, names, [*required, *(name for name in optional if name in names)])
        rows = self._rows()
        next(rows)
        for number, row in rows:
            if isinstance(row, RowError):
                yield number, row
            elif len(row) != len(names):
                yield number, RowError(f"{len(row)} fields where the header has {len(names)}")
            else:
                yield number, dict(zip(names, row, strict=True))

    def _rows(self) -> Iterator[tuple[int, list[str] | RowError]]:
        """Last line and cells of every row that is not empty, the header first."""
        csv.field_size_limit(MAX_RECORD)
        not_utf8 = False

        def text() -> Iterator[str]:
            nonlocal not_utf8
            for _, line in read_lines(self._path, self._max_bytes):
                try:
                    yield line.decode()
                except UnicodeDecodeError:
                    not_utf8 = True
                    yield line.decode(errors="replace")

        reader = csv.reader(text(), strict=True)
        while True:
            try:
                row: list[str] | RowError | None = next(reader, None)
            except csv.Error as error:
                row = RowError(f"not CSV: {error}")
            if row is None:
                return
            if not_utf8:
                row, not_utf8 = RowError("not UTF-8 text"), False
            if row:
                yield reader.line_num, row
