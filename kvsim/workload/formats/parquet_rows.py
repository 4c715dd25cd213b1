"""`ParquetRows`: the rows of a parquet file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from kvsim.errors import TraceError
from kvsim.workload.expanded import is_gzip, one_line, open_expanded
from kvsim.workload.formats.record import Record
from kvsim.workload.table import check_columns, check_parquet_size

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
