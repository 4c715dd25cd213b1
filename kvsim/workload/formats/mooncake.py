"""Mooncake: JSON lines with timestamp (ms), input_length, output_length, hash_ids of 512-token blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kvsim.workload.formats.base import Format
from kvsim.workload.formats.fields import Fields, hash_ids, instant, tokens
from kvsim.workload.formats.row import ARRIVAL, Row

MILLISECOND_NS = 1_000_000
BLOCK_SIZE = 512


class Mooncake(Format):
    """One row a line."""

    name = "mooncake"
    required = ("timestamp", "input_length", "output_length", "hash_ids")
    columns: ClassVar = {ARRIVAL: "timestamp", "hash_ids": "hash_ids", "hash_block_size": "hash_ids"}

    def rows(self, fields: Fields) -> Iterable[Row]:
        """See `Format`."""
        arrival = instant(fields, "timestamp", MILLISECOND_NS)
        prompt, output = tokens(fields, "input_length"), tokens(fields, "output_length")
        return (Row(arrival, prompt, output, hash_ids=hash_ids(fields, "hash_ids"), hash_block_size=BLOCK_SIZE),)
