"""Qwen-Bailian: JSON lines with chat_id, parent_chat_id, timestamp (s), turn, lengths, hash_ids of 16-token blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kvsim.workload.formats.base import Format
from kvsim.workload.formats.fields import Fields, hash_ids, instant, integer, tokens
from kvsim.workload.formats.row import ARRIVAL, Row

ROOT = -1
BLOCK_SIZE = 16


class Bailian(Format):
    """One row a line; the session is the chat from which a chain of parents starts, as far as the file shows it.

    Memory grows by an entry for each chat that continues another, for a later one may continue it in turn: 70 to
    100 MiB for a million of them.
    """

    name = "bailian"
    required = ("chat_id", "parent_chat_id", "timestamp", "turn", "input_length", "output_length", "hash_ids")
    columns: ClassVar = {
        ARRIVAL: "timestamp",
        "session_id": "chat_id",
        "turn": "turn",
        "hash_ids": "hash_ids",
        "hash_block_size": "hash_ids",
    }

    def __init__(self) -> None:
        super().__init__()
        self._session_of: dict[int, int] = {}

    def rows(self, fields: Fields) -> Iterable[Row]:
        """See `Format`."""
        chat, parent = integer(fields, "chat_id"), integer(fields, "parent_chat_id", low=ROOT)
        session = chat if parent == ROOT else self._session_of.get(parent, parent)
        row = Row(
            instant(fields, "timestamp"),
            tokens(fields, "input_length"),
            tokens(fields, "output_length"),
            str(session),
            integer(fields, "turn"),
            hash_ids=hash_ids(fields, "hash_ids"),
            hash_block_size=BLOCK_SIZE,
        )
        if parent != ROOT:  # a root is its own session
            self._session_of[chat] = session
        return (row,)
