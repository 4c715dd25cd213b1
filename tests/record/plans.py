"""Plans by hand, for the tests of those who carry them out and write them down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kvsim.plan import BlockTable, PoolUsage, StepPlan, StepResult

Row = tuple[int, int, int, int]
"""Sequence, position of its first new token, new tokens, samples."""


def plan(rows: list[Row], tables: Mapping[int, BlockTable] | None = None, **fields: Any) -> StepPlan:
    """A plan of these rows, all that runs; a row of one token after another is a decode."""
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    seq_ids, positions, num_tokens, num_samples = (column.copy() for column in columns)
    context_lens = positions + num_tokens
    totals = {
        "total_tokens": int(num_tokens.sum()),
        "context_tokens": int(context_lens.sum()),
        "num_decodes": sum(position > 0 and tokens == 1 for _, position, tokens, _ in rows),
        "num_running": len(rows),
        "step": 0,
    }
    columns_of = (seq_ids, positions, num_tokens, positions, context_lens, num_samples)
    return StepPlan(
        **dict(zip(StepPlan._fields[1:7], columns_of, strict=True)), tables=tables or {}, **(totals | fields)
    )


def decodes(*held: int, first_id: int = 0, **fields: Any) -> StepPlan:
    """Sequences that hold so many tokens each and compute one more."""
    return plan([(first_id + row, tokens, 1, 1) for row, tokens in enumerate(held)], **fields)


def result(*durations: int, stopped: tuple[int, ...] = ()) -> StepResult:
    return StepResult(np.array(durations, dtype=np.int64), np.array(stopped, dtype=np.int64))


def usage(total: int, resident: int, held: int, grants: Mapping[int, int] | None = None, version: int = 0) -> PoolUsage:
    """A pool of `total` slots, what is not held being free."""
    return PoolUsage(total, resident, held, total - held, grants or {}, version)
