"""kvsim's own trace table, CSV or parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, TypeVar

from kvsim.workload.formats.base import Format
from kvsim.workload.formats.fields import MAX_INTEGER, Fields, hash_ids, identifier, instant, integer, tokens
from kvsim.workload.formats.row import ARRIVAL, COLUMNS, OUTPUT, PROMPT, Row, RowError

T = TypeVar("T")


class TraceTable(Format):
    """One row a line; an optional column may be absent, and any of its cells empty."""

    name = "table"
    required = (PROMPT, OUTPUT)
    optional = tuple(name for name in COLUMNS if name not in (PROMPT, OUTPUT))
    columns: ClassVar = {name: name for name in optional}

    def rows(self, fields: Fields) -> Iterable[Row]:
        """See `Format`."""

        def optional(read: Callable[[Fields, str], T], name: str) -> T | None:
            return None if fields.get(name) in (None, "") else read(fields, name)

        row = Row(
            optional(instant, ARRIVAL),
            tokens(fields, PROMPT),
            tokens(fields, OUTPUT),
            optional(identifier, "session_id"),
            optional(integer, "turn"),
            optional(lambda fields, name: integer(fields, name, low=-MAX_INTEGER), "priority"),
            optional(hash_ids, "hash_ids"),
            optional(lambda fields, name: integer(fields, name, low=1), "hash_block_size"),
        )
        if row.hash_ids and row.hash_block_size is None:
            raise RowError("hash_block_size is empty, so hash_ids have no meaning")
        return (row,)
