"""Writers of a run's tables, a parquet file or a line at a time."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from kvsim.plan import IntArray
from kvsim.units import NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["int64", "float64", "string"]
Column = NDArray[Any] | Sequence[Any]

ROW_GROUP = 32_768
"""Rows of a parquet row group: fixed, so that files do not depend on the chunks in which rows came."""


class ParquetStream:
    """Writes a parquet file from chunks of columns; the bytes depend on the rows only, not on the chunks.

    Numbers are packed as differences (integers) or byte planes (floats), then zstd: at these sizes as fast as plain
    lz4 and a third of its size. NaN becomes null, and so does None in a string column.
    """

    def __init__(self, path: Path, schema: Mapping[str, Kind]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._kinds = dict(schema)
        self._schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in schema.items()])
        encodings = {"int64": "DELTA_BINARY_PACKED", "float64": "BYTE_STREAM_SPLIT", "string": "PLAIN"}
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            use_dictionary=False,
            column_encoding={name: encodings[kind] for name, kind in schema.items()},
            write_statistics=False,
            store_schema=False,
        )
        dtypes = {name: object if kind == "string" else np.dtype(kind) for name, kind in schema.items()}
        self._rows: dict[str, NDArray[Any]] = {name: np.empty(ROW_GROUP, dtype) for name, dtype in dtypes.items()}
        self._filled = 0

    def write(self, columns: Mapping[str, Column]) -> None:
        """Append rows, copying them; `columns` has every column of the schema, equally long.

        Raises:
            ValueError: a column is missing, unknown or of another length.
            TypeError: numbers of another kind, such as floats for an int64 column.
        """
        lengths = {len(column) for column in columns.values()}
        if columns.keys() != self._rows.keys() or len(lengths) != 1:
            raise ValueError(
                f"columns {list(columns)} of lengths {sorted(lengths)}; wanted {list(self._rows)}, equally long"
            )
        length = lengths.pop()
        taken = 0
        while taken < length:
            count = min(length - taken, ROW_GROUP - self._filled)
            for name, column in columns.items():
                rows = self._rows[name][self._filled : self._filled + count]
                part = column[taken : taken + count]
                texts = rows.dtype == np.object_  # a str array would lose trailing NULs
                np.copyto(rows, np.asarray(part, dtype=np.object_) if texts else part, casting="same_kind")
            taken += count
            self._filled += count
            if self._filled == ROW_GROUP:
                self._flush()

    def close(self) -> None:
        """Write what is left and finish the file."""
        try:
            self._flush()
        finally:
            self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._filled:
            return
        arrays = [_arrow(self._rows[name][: self._filled], kind) for name, kind in self._kinds.items()]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema), row_group_size=ROW_GROUP)
        self._filled = 0


class PlanLog:
    """Writes what every step scheduled, one JSON line a step, gzip with neither time nor name in its header."""

    def __init__(self, path: Path) -> None:
        import gzip

        self._file: BinaryIO = path.open("wb")
        packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=self._file, mtime=0)
        self._lines = io.BufferedWriter(packed, 1 << 16)

    def write(
        self,
        step: int,
        start_ns: int,
        request_ids: IntArray,
        num_tokens: IntArray,
        preempted: Sequence[int],
        finished: Sequence[int],
    ) -> None:
        """Append step `step`: the tokens each request was given, in plan order, who was preempted and who finished."""
        line = {
            "step": step,
            "start_s": start_ns / NS_PER_S,
            "scheduled": np.column_stack((request_ids, num_tokens)).tolist(),
            "preempted": list(preempted),
            "finished": list(finished),
        }
        self._lines.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Finish the file."""
        try:
            self._lines.close()
        finally:
            self._file.close()


def _arrow(values: NDArray[Any], kind: Kind) -> pa.Array:
    """An arrow array over `values`. From raw buffers, since `pyarrow.array` imports pandas (0.3 s)."""
    import pyarrow as pa

    if kind == "string":
        missing = np.array([text is None for text in values], dtype=np.bool_)
        texts = [(text or "").encode() for text in values]
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        buffers = [pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    else:
        missing = np.isnan(values) if kind == "float64" else np.zeros(0, dtype=np.bool_)
        buffers = [pa.py_buffer(values)]
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(getattr(pa, kind)(), len(values), [valid, *buffers])
