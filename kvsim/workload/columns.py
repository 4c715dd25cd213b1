"""A table's columns as checked numbers and instants."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsim.plan import IntArray
from kvsim.workload.base import MAX_SECONDS, NANOSECONDS
from kvsim.workload.table import Table


def read_numbers(table: Table, name: str, high: float, whole: bool) -> NDArray[np.float64]:
    """[rows] a column as numbers in [0, high]; TraceError names the first that is none."""
    import pyarrow as pa

    problem = f"is not a {'whole ' if whole else ''}number from 0 to {high:.0f}"
    values: NDArray[np.float64] = _cast(table, name, pa.float64(), problem).to_numpy()
    good = (values >= 0) & (values <= high)
    if whole:
        good &= values == np.floor(values)
    if not good.all():
        raise table.error(int(np.argmin(good)), name, problem)
    return values


def read_timestamps(table: Table, name: str) -> IntArray:
    """[rows] ns since the earliest of a column of absolute times, with or without time zone; TraceError as above."""
    import pyarrow as pa

    zone = "UTC" if str(table.columns[name][0].as_py()).strip().endswith(("Z", "+00:00")) else None
    stamps = _cast(table, name, pa.timestamp("ns", zone), "is not a timestamp such as 2023-11-16 18:15:46.6805900")
    instants: IntArray = stamps.cast(pa.int64()).to_numpy()
    instants = instants - instants.min()
    far = (instants < 0) | (instants > MAX_SECONDS * NANOSECONDS)  # negative where the difference overflows
    if far.any():
        raise table.error(int(far.argmax()), name, f"is more than {MAX_SECONDS:.0f} s after the earliest")
    return instants


def is_blank(table: Table, name: str) -> bool:
    """Whether no row has a value in a column."""
    column = table.columns[name]
    return column[0].as_py() in (None, "") and set(column.unique().to_pylist()) <= {None, ""}


def _cast(table: Table, name: str, kind: Any, problem: str) -> Any:
    """The column as `kind`; names the first row that is empty or has no such value."""
    import pyarrow as pa

    column = table.columns[name]
    if column.null_count:
        raise table.error(int(np.argmin(column.is_valid().to_numpy())), name, problem)
    try:
        return column.cast(kind)
    except pa.ArrowException:
        raise table.error(_first_failure(column, kind), name, problem) from None


def _first_failure(column: Any, kind: Any) -> int:
    """First row that does not convert, by bisection."""
    import pyarrow as pa

    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            column.slice(low, middle - low).cast(kind)
            low = middle
        except pa.ArrowException:
            high = middle
    return low
