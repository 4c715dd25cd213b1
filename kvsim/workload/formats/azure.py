"""Azure LLM inference traces: CSV with TIMESTAMP, ContextTokens, GeneratedTokens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import ClassVar

from kvsim.units import MAX_SECONDS, NS_PER_S
from kvsim.workload.formats.base import Format
from kvsim.workload.formats.fields import Fields, present, tokens
from kvsim.workload.formats.row import ARRIVAL, Row, RowError

TIME, CONTEXT, GENERATED = "TIMESTAMP", "ContextTokens", "GeneratedTokens"
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
NO_TIME = ("", "XXX")
"""What stands for a time in tables of this kind that have none (NanoFlow's)."""


class Azure(Format):
    """One row a line; instants count from `origin_ns`, which is the earliest of the file."""

    name = "azure"
    required = (TIME, CONTEXT, GENERATED)
    columns: ClassVar = {ARRIVAL: TIME}

    def __init__(self) -> None:
        super().__init__()
        self.origin_ns: int | None = None

    def rows(self, fields: Fields) -> Iterable[Row]:
        """See `Format`; ns since 1970 while there is no origin."""
        value = present(fields, TIME)
        stamp = None if value is None or str(value) in NO_TIME else _nanoseconds(str(value))
        if stamp is not None and self.origin_ns is not None:
            stamp -= self.origin_ns
            if stamp > MAX_SECONDS * NS_PER_S:
                raise RowError(f"is more than {MAX_SECONDS:.0f} s after the earliest", TIME, value)
        return (Row(stamp, tokens(fields, CONTEXT), tokens(fields, GENERATED)),)


def _nanoseconds(value: str) -> int:
    """Since 1970 in UTC, which a stamp without time zone is taken for."""
    match = _STAMP.fullmatch(value.strip())
    try:
        if match is None:
            raise ValueError
        whole, fraction, zone = match.groups()
        seconds = _seconds(whole, zone or "+00:00")
    except ValueError:
        raise RowError("is not a timestamp such as 2023-11-16 18:15:46.6805900", TIME, value) from None
    return seconds * NS_PER_S + int((fraction or "").ljust(9, "0"))


@lru_cache(maxsize=64)
def _seconds(whole: str, zone: str) -> int:
    """Since 1970; kept, as many requests arrive within one second."""
    since = datetime.fromisoformat(whole + zone) - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400 + since.seconds
