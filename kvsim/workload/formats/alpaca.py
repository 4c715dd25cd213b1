"""Alpaca: ``[{"instruction", "input", "output"}, ...]``."""

from __future__ import annotations

from collections.abc import Iterable

from kvsim.workload.formats.base import TextFormat
from kvsim.workload.formats.fields import Fields, text
from kvsim.workload.formats.row import Row


class Alpaca(TextFormat):
    """One row a record. The prompt is the instruction and, on a line of its own, the input; no template around them."""

    name = "alpaca"
    required = ("instruction", "output")
    optional = ("input",)

    def rows(self, fields: Fields) -> Iterable[Row]:
        """See `Format`."""
        parts = [text(fields, "instruction")]
        if fields.get("input"):
            parts.append(text(fields, "input"))
        return self.pair("\n".join(parts), text(fields, "output"))
