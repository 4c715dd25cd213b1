"""`TraceSource`: the rows of a trace file of any known format."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvsim.checks import check_choice
from kvsim.errors import ConfigError, TraceError
from kvsim.workload.expanded import MAX_BYTES, one_line
from kvsim.workload.formats.alpaca import Alpaca
from kvsim.workload.formats.azure import Azure
from kvsim.workload.formats.bailian import Bailian
from kvsim.workload.formats.base import Format, TextFormat
from kvsim.workload.formats.burstgpt import BurstGPT
from kvsim.workload.formats.mooncake import Mooncake
from kvsim.workload.formats.names import list_names
from kvsim.workload.formats.record import Records
from kvsim.workload.formats.records import open_records
from kvsim.workload.formats.row import ARRIVAL, COLUMNS, OUTPUT, PROMPT, Row, RowError
from kvsim.workload.formats.sharegpt import ShareGPT
from kvsim.workload.formats.table import TraceTable
from kvsim.workload.formats.tokens import token_counter

FORMATS: dict[str, type[Format]] = {
    kind.name: kind for kind in (ShareGPT, Alpaca, Azure, BurstGPT, Mooncake, Bailian, TraceTable)
}
DEFAULT_TOKENIZER = "chars4"
NUM_EXAMPLES = 3


class TraceSource:
    """Iterates over the requests of a file, every time anew.

    Args:
        path: CSV, JSON array, JSON lines or parquet; gzip is expanded.
        format_name: one of `FORMATS`, or ``auto`` to tell by the names of the fields.
        tokenizer: for formats with texts: ``opt``, ``chars4`` (default) or the path of a ``tokenizer.json``.
        skip_bad_rows: count bad rows instead of stopping at the first.
        max_bytes: limit of the expanded file.

    Attributes:
        kind: the format.
        columns: of the trace table that the file fills.
        counter: what counted the tokens of texts, or None.
        num_skipped, examples: bad rows so far, and what is wrong with the first three.
        left_out: reason -> how often something that is no request was left out so far.

    Raises:
        TraceError: the file cannot be used; names file, place, field and value.
        ConfigError: an option that does not exist or does not fit the file.
    """

    def __init__(
        self,
        path: Path,
        format_name: str = "auto",
        tokenizer: str | None = None,
        skip_bad_rows: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        check_choice("--format", format_name, ("auto", *FORMATS))
        self.path, self._skip_bad_rows = path, skip_bad_rows
        with _reading(path):
            self._records: Records = open_records(path, max_bytes)
            names = self._records.names()
        self.kind = FORMATS[format_name] if format_name != "auto" else _recognise(path, names)
        filled = (column for column, field in self.kind.columns.items() if field in (*self.kind.required, *names))
        chosen = {PROMPT, OUTPUT, *filled}
        self.columns = tuple(column for column in COLUMNS if column in chosen)
        if tokenizer is not None and not self.kind.has_text:
            raise ConfigError(f"--tokenizer {tokenizer}: {path} ({self.kind.name}) holds token counts; drop the option")
        self.counter = token_counter(tokenizer or DEFAULT_TOKENIZER) if self.kind.has_text else None
        self._start()

    def __iter__(self) -> Iterator[Row]:
        """The rows in the file's order; instants count from the run's start, absolute ones from the earliest."""
        origin = None
        if issubclass(self.kind, Azure):
            origin = min((row.arrival_ns for row in self._rows(None) if row.arrival_ns is not None), default=0)
        return self._rows(origin)

    def _start(self) -> Format:
        self.num_skipped = 0
        self.examples: list[str] = []
        reader = self._reader()
        self.left_out = reader.left_out
        return reader

    def _reader(self) -> Format:
        if issubclass(self.kind, TextFormat):
            assert self.counter is not None
            return self.kind(self.counter)
        return self.kind()

    def _rows(self, origin_ns: int | None) -> Iterator[Row]:
        reader = self._start()
        if isinstance(reader, Azure):
            reader.origin_ns = origin_ns
        timeless: bool | None = None
        with _reading(self.path):
            for number, fields in self._records.read(reader.required, reader.optional):
                try:
                    if isinstance(fields, RowError):
                        raise fields
                    rows = reader.rows(fields)
                    for row in rows:
                        if timeless is None:
                            timeless = row.arrival_ns is None
                        elif timeless != (row.arrival_ns is None):
                            raise RowError(f"{ARRIVAL} is {'set' if timeless else 'empty'}, unlike in the first row")
                        yield row
                except RowError as error:
                    self._skip(f"{self._records.unit} {number}", error)
        if timeless is None:
            raise TraceError(f"{self.path}: has no request that can be used")

    def _skip(self, place: str, error: RowError) -> None:
        what = f"{place}, {error}" if error.field else f"{place}: {error}"
        if not self._skip_bad_rows:
            raise TraceError(f"{self.path}, {what}")
        self.num_skipped += 1
        if len(self.examples) < NUM_EXAMPLES:
            self.examples.append(what)


def _recognise(path: Path, names: list[str]) -> type[Format]:
    """The format of which all required fields are here, of several the one with the most."""
    missing = {kind: [name for name in kind.required if name not in names] for kind in FORMATS.values()}
    known = [kind for kind in missing if not missing[kind]]
    if known:
        return max(known, key=lambda kind: len(kind.required))
    near = next((kind for kind in missing if 2 * len(missing[kind]) < len(kind.required)), None)
    hint = f" ({near.name} has {', '.join(missing[near])} too)" if near else ""
    raise TraceError(
        f"{path}: no known format; name the columns of a trace table {PROMPT}, {OUTPUT} and, if it has times, "
        f"{ARRIVAL}; the file has {list_names(names)}{hint}"
    )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        problem = error.strerror if isinstance(error, OSError) else None
        raise TraceError(f"{path}: cannot be read: {problem or one_line(error)}") from error
