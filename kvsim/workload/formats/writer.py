"""`TableWriter`: rows to a trace table, parquet or CSV, that appears complete or not at all."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from kvsim.errors import ConfigError
from kvsim.units import NS_PER_S
from kvsim.workload.formats.row import ARRIVAL, COLUMNS, Row

ROW_GROUP = 32_768
MAX_TEXT = 4 << 20
"""Characters of hash ids after which a row group ends early."""

SUFFIXES = (".parquet", ".csv")


def write_table(path: Path, rows: Iterable[Row], columns: Sequence[str], source: Path | None = None) -> int:
    """Write a trace table by row groups, under a temporary name until it is complete; the number of rows.

    Args:
        path: ends in ``.parquet`` or ``.csv``.
        columns: some of `COLUMNS`, in their order.
        source: the file that `rows` come from, which is never overwritten.

    Raises:
        ConfigError: `path` cannot be written or is the source.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{path}: must end in {' or '.join(SUFFIXES)}; give for example -o trace.parquet")
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; give for example -o trace.parquet")
    if source is not None and path.exists() and path.samefile(source):
        raise ConfigError(f"{path}: is the file that is read; give another name with -o")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        file = temporary.open("xb")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}; give another name with -o") from error
    try:
        with file:
            write = _write_csv if path.suffix == ".csv" else _write_parquet
            count = write(file, rows, columns)
        if not count:
            raise ConfigError(f"{path}: would have no rows; ask for more requests or a longer time")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return count


def _write_parquet(file: IO[bytes], rows: Iterable[Row], columns: Sequence[str]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, COLUMNS[name]) for name in columns])
    count = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for group in _groups(rows):
            table = dict(zip(COLUMNS, zip(*group, strict=True), strict=True))
            table[ARRIVAL] = tuple(map(_seconds, table[ARRIVAL]))
            writer.write_table(pa.table({name: pa.array(table[name], COLUMNS[name]) for name in columns}, schema))
            count += len(group)
    return count


def _write_csv(file: IO[bytes], rows: Iterable[Row], columns: Sequence[str]) -> int:
    picked = [list(COLUMNS).index(name) for name in columns]
    count = 0
    with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            cells: tuple[Any, ...] = (_seconds(row.arrival_ns), *row[1:])
            writer.writerow([cells[index] for index in picked])
            count += 1
    return count


def _seconds(instant_ns: int | None) -> float | None:
    """Seconds that read back as the same ns up to 2**53 ns, 104 days."""
    return None if instant_ns is None else instant_ns / NS_PER_S


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Row groups."""
    remaining = iter(rows)
    while True:
        group: list[Row] = []
        size = 0
        for row in islice(remaining, ROW_GROUP):
            group.append(row)
            size += len(row.hash_ids or "")
            if size > MAX_TEXT:
                break
        if not group:
            return
        yield group
