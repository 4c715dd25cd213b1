"""`ParquetRows`: the rows of a parquet file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from kvsim.errors import TraceError
from kvsim.workload.expanded import is_gzip, one_line, open_expanded, too_large
from kvsim.workload.formats.fields import Fields
from kvsim.workload.formats.names import check_columns
from kvsim.workload.formats.record import Record
from kvsim.workload.formats.row import RowError

PARQUET_MAGIC = b"PAR1"
BATCH = 4096


class ParquetRows:
    """Rows of a parquet file, some columns of it."""

    unit: ClassVar[str] = "row"

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes

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
            self._check_size(file.metadata, len(wanted))
            number = 0
            for batch in file.iter_batches(BATCH, columns=wanted, use_threads=False):
                for fields in _rows(batch):
                    yield number, fields
                    number += 1

    def _check_size(self, meta: Any, num_columns: int) -> None:
        """TraceError if reading so many columns would expand to too many bytes."""
        groups = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        # Run-length encoding may hide any number of rows in a few bytes: count 8 bytes a value too.
        if max(groups, 8 * meta.num_rows * num_columns) > self._max_bytes:
            raise too_large(self._path, self._max_bytes)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            packed = is_gzip(self._path)  # parquet is read from its end, gzip from its beginning
            with tempfile.TemporaryFile() if packed else self._path.open("rb") as source:
                if packed:
                    with open_expanded(self._path, self._max_bytes) as file:
                        shutil.copyfileobj(file, source)
                with pq.ParquetFile(source) as parquet:
                    yield parquet
        except pa.ArrowException as error:
            raise TraceError(f"{self._path}: not a readable parquet file: {one_line(error)}") from error


def _rows(batch: Any) -> list[Fields | RowError]:
    """The batch's rows; one with a value beyond Python's types, such as a time in the year 20000, is an error."""
    try:
        rows: list[Fields | RowError] = batch.to_pylist()
        return rows
    except (OverflowError, ValueError):
        return [_row(batch, index) for index in range(batch.num_rows)]


def _row(batch: Any, index: int) -> Fields | RowError:
    fields = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            fields[name] = column[index].as_py()
        except (OverflowError, ValueError) as error:
            return RowError(f"column {name}: cannot be read: {one_line(error)}")
    return fields
