"""`Table`: the columns of a CSV (plain or gzip) or parquet file, and where a row stands in it."""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from kvsim.errors import TraceError
from kvsim.workload.expanded import one_line, open_expanded, too_large

HEAD_BYTES = 1 << 20
PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Table:
    """Some columns of a file.

    Attributes:
        path: the file, for messages.
        columns: name -> pyarrow ChunkedArray, of text for a CSV.
        place: row number from 0 -> where it stands, such as "line 7".
    """

    path: Path
    columns: dict[str, Any]
    place: Callable[[int], str]

    def error(self, row: int, column: str, problem: str) -> TraceError:
        """An error that names file, line and column and quotes the value."""
        value = str(self.columns[column][row].as_py())[:40]
        return TraceError(f"{self.path}, {self.place(row)}, column {column}: {value!r} {problem}")


def read_table(path: Path, choose: Callable[[list[str]], Sequence[str]], max_bytes: int) -> Table:
    """Read the columns that `choose` picks from those the file has.

    Raises:
        TraceError: no such file, not a table, a column missing, no row, or more than `max_bytes` when expanded.
    """
    if not path.exists():
        raise TraceError(f"{path}: no such file; give workload.path=FILE")
    if not path.is_file():
        raise TraceError(f"{path}: is not a file; give a CSV or parquet file")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if not magic:
            raise TraceError(f"{path}: is empty; the first line must be a header")
        read = _read_parquet if magic == PARQUET_MAGIC else _read_csv
        table = read(path, choose, max_bytes)
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise TraceError(f"{path}: cannot be read: {one_line(error)}") from error
    if not all(len(column) for column in table.columns.values()):
        raise TraceError(f"{path}: has a header but no rows")
    return table


def check_columns(path: Path, names: Sequence[str], wanted: Sequence[str], hint: str = "") -> None:
    """TraceError unless each wanted column is there once; `hint` follows where one is missing."""
    found = list_names(names)
    for name in wanted:
        if name not in names:
            raise TraceError(f"{path}: column {name} is missing; the file has {found}{hint}")
        if names.count(name) > 1:
            raise TraceError(f"{path}: column {name} is there more than once; the file has {found}")


def list_names(names: Sequence[str]) -> str:
    """The first names, for a message; nothing in them reaches a terminal as a control character."""
    line = ", ".join(name[:40] for name in names[:12])
    return "".join(character if character.isprintable() else "?" for character in line)


def _pick(path: Path, names: list[str], choose: Callable[[list[str]], Sequence[str]]) -> list[str]:
    wanted = list(choose(names))
    check_columns(path, names, wanted, "; kvsim trace import turns other formats into a trace table")
    return wanted


def _read_parquet(path: Path, choose: Callable[[list[str]], Sequence[str]], max_bytes: int) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
            wanted = _pick(path, names, choose)
            check_parquet_size(path, file.metadata, len(wanted), max_bytes)
            data = file.read(columns=wanted)
    except pa.ArrowException as error:
        raise TraceError(f"{path}: not a readable parquet file: {one_line(error)}") from error
    return Table(path, {name: data.column(name) for name in wanted}, lambda row: f"row {row}")


def check_parquet_size(path: Path, meta: Any, num_columns: int, max_bytes: int) -> None:
    """TraceError if reading so many columns would expand to more than `max_bytes`."""
    groups = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
    # Run-length encoding may hide any number of rows in a few bytes: count 8 bytes a value too.
    if max(groups, 8 * meta.num_rows * num_columns) > max_bytes:
        raise too_large(path, max_bytes)


def _read_csv(path: Path, choose: Callable[[list[str]], Sequence[str]], max_bytes: int) -> Table:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    names = _header(path, max_bytes)
    wanted = _pick(path, names, choose)
    options = pacsv.ConvertOptions(
        column_types={name: pa.string() for name in names}, include_columns=wanted, strings_can_be_null=False
    )
    try:
        with open_expanded(path, max_bytes) as file:
            reading = pacsv.ReadOptions(use_threads=False, block_size=16 * HEAD_BYTES)
            data = pacsv.read_csv(file, read_options=reading, convert_options=options)
    except pa.ArrowException as error:
        raise _fault(path, len(names), max_bytes, one_line(error)) from error
    return Table(
        path, {name: data.column(name) for name in wanted}, lambda row: f"line {_line_of(path, row, max_bytes)}"
    )


def _header(path: Path, max_bytes: int) -> list[str]:
    """Column names from the first line that is not empty."""
    with open_expanded(path, max_bytes) as file:
        head = file.read(HEAD_BYTES) or b""
    # The head may end inside a character.
    text = head.decode("utf-8-sig", errors="replace").rstrip("\ufffd")
    if "\0" in text or "\ufffd" in text:
        raise TraceError(f"{path}: is binary; a trace is a CSV (UTF-8, plain or gzip) or parquet file")
    line = next((line for line in io.StringIO(text, newline=None) if line.rstrip("\n")), None)
    if line is None:
        raise TraceError(f"{path}: is empty; the first line must be a header")
    return _split(line)


def _lines(path: Path, max_bytes: int) -> Iterator[tuple[int, str]]:
    """Number and text of the lines that are not empty, the header first; slow, for error messages alone."""
    with open_expanded(path, max_bytes) as file:
        text = io.TextIOWrapper(io.BufferedReader(file), encoding="utf-8-sig", errors="replace")
        yield from ((number, line) for number, line in enumerate(text, start=1) if line.rstrip("\n"))


def _line_of(path: Path, row: int, max_bytes: int) -> int:
    return next(islice(_lines(path, max_bytes), row + 1, None))[0]


def _fault(path: Path, width: int, max_bytes: int, otherwise: str) -> TraceError:
    """What is wrong with a CSV that does not parse."""
    for number, line in _lines(path, max_bytes):
        if len(_split(line)) != width:
            return TraceError(f"{path}, line {number}: {len(_split(line))} fields where the header has {width}")
        if "\ufffd" in line:
            return TraceError(f"{path}, line {number}: not UTF-8 text")
    return TraceError(f"{path}: not a readable CSV: {otherwise}")


def _split(line: str) -> list[str]:
    return next(csv.reader([line]), [])
