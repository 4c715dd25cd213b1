"""The records of a file, known by its first bytes: lines of a CSV, rows of a parquet file, objects of JSON."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

from kvsim.errors import TraceError
from kvsim.workload.expanded import BUFFER_BYTES, check_file, is_gzip, one_line, open_expanded
from kvsim.workload.formats.array import ArrayReader
from kvsim.workload.formats.fields import Fields
from kvsim.workload.formats.row import RowError
from kvsim.workload.table import PARQUET_MAGIC, check_columns, check_parquet_size

HEAD_BYTES = 1 << 16
MAX_RECORD = 16 << 20
"""Bytes of the longest line and characters of the longest record of a JSON array."""

BATCH = 4096
WIDE_TEXT = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")

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


def open_records(path: Path, max_bytes: int) -> Records:
    """The records of a CSV, parquet or JSON file, plain or gzip.

    Raises:
        TraceError: none of these.
    """
    check_file(path)
    with open_expanded(path, max_bytes) as file:
        head = io.BufferedReader(file, HEAD_BYTES).read(HEAD_BYTES)
    if not head.strip():
        raise TraceError(f"{path}: is empty; a trace has a header or records")
    if head.startswith(PARQUET_MAGIC):
        return ParquetRows(path, max_bytes)
    if head.startswith(WIDE_TEXT):
        raise TraceError(f"{path}: is UTF-16 or UTF-32 text; turn it into UTF-8 (iconv -f UTF-16 -t UTF-8)")
    if b"\0" in head:
        raise TraceError(f"{path}: is binary; a trace is CSV or JSON (UTF-8, plain or gzip) or parquet")
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if first == b"[":
        return JsonArray(path, max_bytes)
    return JsonLines(path, max_bytes) if first == b"{" else CsvLines(path, max_bytes)


class _File:
    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Number from 1 and bytes of each line."""
        with open_expanded(self._path, self._max_bytes) as file:
            lines = io.BufferedReader(file, BUFFER_BYTES)
            number = 1
            while line := lines.readline(MAX_RECORD + 1):
                if len(line) > MAX_RECORD:
                    raise TraceError(f"{self._path}, line {number}: is longer than {MAX_RECORD} bytes")
                yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                number += 1


class CsvLines(_File):
    """Rows of a CSV under its header; values are text."""

    unit: ClassVar[str] = "line"

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
            for _, line in self._lines():
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


class ParquetRows(_File):
    """Rows of a parquet file, some columns of it."""

    unit: ClassVar[str] = "row"

    def names(self) -> list[str]:
        """See `Records`."""
        with self._open() as file:
            return list(file.schema_arrow.names)

    def read(self, required: Sequence[str], optional: Sequence[str]) -> Iterator[Record]:
        """See `Records`."""
        with self._open() as file:
            names = list(file.schema_arrow.names)
            wanted = [*required, *(name for name in optional if name in names)]
            check_columns(self._path, names, wanted)
            check_parquet_size(self._path, file.metadata, len(wanted), self._max_bytes)
            number = 0
            for batch in file.iter_batches(BATCH, columns=wanted, use_threads=False):
                for fields in batch.to_pylist():
                    yield number, fields
                    number += 1

    @contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with tempfile.TemporaryFile() as spool:
                source: Any = self._path
                if is_gzip(self._path):  # parquet is read from its end, gzip from its beginning
                    with open_expanded(self._path, self._max_bytes) as file:
                        shutil.copyfileobj(file, spool)
                    source = spool
                with pq.ParquetFile(source) as parquet:
                    yield parquet
        except pa.ArrowException as error:
            raise TraceError(f"{self._path}: not a readable parquet file: {one_line(error)}") from error


class _Json(_File):
    unit: ClassVar[str]

    def names(self) -> list[str]:
        """See `Records`."""
        first: str | None = None
        for number, fields in self.read((), ()):
            if not isinstance(fields, RowError):
                return list(fields)
            first = first or f"{self._path}, {self.unit} {number}: {fields}"
        raise TraceError(first or f"{self._path}: holds no JSON object")

    def read(self, required: Sequence[str], optional: Sequence[str]) -> Iterator[Record]:
        """See `Records`."""
        raise NotImplementedError


class JsonLines(_Json):
    """Objects of which each stands on a line of its own."""

    unit: ClassVar[str] = "line"

    def read(self, required: Sequence[str], optional: Sequence[str]) -> Iterator[Record]:
        """See `Records`."""
        for number, line in self._lines():
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
