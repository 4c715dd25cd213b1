"""`Row`: one request of a trace, and the columns of a trace table in which it is written."""

from __future__ import annotations

from typing import NamedTuple

from kvsim.checks import MAX_SHOWN, shown


class Row(NamedTuple):
    """One request; None where the source does not know.

    Attributes:
        arrival_ns: ns since the trace's start.
        num_prompt_tokens: tokens.
        num_output_tokens: tokens.
        session_id: rows of one conversation share it.
        turn: of the conversation, from 1.
        priority: as the source gives it.
        hash_ids: integers separated by spaces, one a block of the prompt; an id stands for the prompt up to there.
        hash_block_size: tokens of such a block.
    """

    arrival_ns: int | None
    num_prompt_tokens: int
    num_output_tokens: int
    session_id: str | None = None
    turn: int | None = None
    priority: int | None = None
    hash_ids: str | None = None
    hash_block_size: int | None = None


COLUMNS = {
    "arrival_time_s": "float64",
    "num_prompt_tokens": "int64",
    "num_output_tokens": "int64",
    "session_id": "string",
    "turn": "int64",
    "priority": "int64",
    "hash_ids": "string",
    "hash_block_size": "int64",
}
"""Columns of a trace table, in the order of `Row`, and their parquet types."""

ARRIVAL, PROMPT, OUTPUT = "arrival_time_s", "num_prompt_tokens", "num_output_tokens"


class RowError(ValueError):
    """What is wrong with one row; whoever reads the file adds file and place.

    Args:
        problem: for example ``"is not a whole number from 0 to 9"``.
        field: column or key; None where the whole row is meant.
        value: that was found there.
    """

    def __init__(self, problem: str, field: str | None = None, value: object = None) -> None:
        self.field = field
        if field is None:
            super().__init__(problem)
        else:
            super().__init__(f"column {field}: {_kind_or_text(value)} {problem}")


def _kind_or_text(value: object) -> str:
    """The beginning of a value; of a list or an object, which may be huge or deep, the kind alone."""
    if isinstance(value, list | tuple | dict):
        return "a list" if not isinstance(value, dict) else "an object"
    return shown(str(value)[: MAX_SHOWN + 1])
