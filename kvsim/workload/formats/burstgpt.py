"""BurstGPT: CSV with Timestamp (s), [Session ID,] Model, Request tokens, Response tokens, Total tokens, Log Type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kvsim.workload.formats.base import Format
from kvsim.workload.formats.fields import Fields, identifier, instant, tokens
from kvsim.workload.formats.row import ARRIVAL, Row

TIME, REQUEST, RESPONSE, SESSION = "Timestamp", "Request tokens", "Response tokens", "Session ID"


class BurstGPT(Format):
    """One row a line; a line with zero tokens is a request that failed and is left out."""

    name = "burstgpt"
    required = (TIME, REQUEST, RESPONSE)
    optional = (SESSION,)
    columns: ClassVar = {ARRIVAL: TIME, "session_id": SESSION}

    def rows(self, fields: Fields) -> Iterable[Row]:
        """See `Format`."""
        prompt, output = tokens(fields, REQUEST), tokens(fields, RESPONSE)
        arrival = instant(fields, TIME)
        session = identifier(fields, SESSION) if fields.get(SESSION) not in (None, "") else None
        if prompt and output:
            return (Row(arrival, prompt, output, session),)
        self.left_out["failed requests (no tokens)"] += 1
        return ()
