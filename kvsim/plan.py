"""`StepPlan`: what a policy decided for one engine step; `StepResult`: what carrying it out gave.

Both are plain integers, so a plan can be saved, compared and replayed on a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

UNBOUNDED = 1 << 62
"""A number of repeats, tokens or nanoseconds that no run reaches."""


def _constant(value: int, size: int) -> IntArray:
    column = np.full(size, value, dtype=np.int64)
    column.flags.writeable = False
    return column


@cache
def ones(size: int) -> IntArray:
    """A shared read-only column of ones; the new tokens and samples of `size` decode rows."""
    return _constant(1, size)


NO_ROWS: IntArray = _constant(0, 0)


PHASES = ("schedule", "prepare", "forward", "finish")
"""What a measured step spends its time on: deciding and keeping books, making the device's inputs, the device with
the launches, taking the results in."""

BlockTable = list[int]
"""Physical blocks of one sequence in logical order: token i lives in slot
``table[i // block_size] * block_size + i % block_size``. Consecutive ids in a contiguous pool."""


class PlanRow(NamedTuple):
    """One row of a plan, for readers: some new tokens of one sequence."""

    seq_id: int
    position: int
    num_tokens: int
    slot_start: int
    context_len: int
    num_samples: int


class StepPlan(NamedTuple):
    """The decision of one step. Rows are columns of equal length; arrays are never changed once in a plan.

    Attributes:
        step: number of the first step this plan describes, from 0.
        seq_ids: [rows] sequence of each row.
        positions: [rows] position of the row's first new token (rotary, causal mask).
        num_tokens: [rows] new tokens to compute.
        slot_starts: [rows] index in the sequence's table where the first of them is written.
        context_lens: [rows] tokens visible after the write.
        num_samples: [rows] tokens to sample at the row's end; 0 for an unfinished chunk.
        tables: block table of every sequence that holds memory, by reference.
        total_tokens: sum of `num_tokens`.
        context_tokens: sum of `context_lens`.
        num_decodes: rows that compute one token after the first of their answer.
        released: sequences whose memory was given back since the plan before (ended or preempted).
        preempted: sequences this decision preempted.
        num_waiting, num_running: queue lengths after the decision.
        starved: the head of the queue does not fit into the free memory.
        padding_tokens: tokens a static batch computes for nothing in its prefill.
        idle_rows: finished members that a static batch still decodes.
        idle_context_tokens: tokens these members have stored.
        max_repeats: how often the decision repeats unchanged if nobody arrives or ends (1 = decide anew).
    """

    step: int
    seq_ids: IntArray
    positions: IntArray
    num_tokens: IntArray
    slot_starts: IntArray
    context_lens: IntArray
    num_samples: IntArray
    tables: Mapping[int, BlockTable]
    total_tokens: int
    context_tokens: int
    num_decodes: int
    released: tuple[int, ...] = ()
    preempted: tuple[int, ...] = ()
    num_waiting: int = 0
    num_running: int = 0
    starved: bool = False
    padding_tokens: int = 0
    idle_rows: int = 0
    idle_context_tokens: int = 0
    max_repeats: int = 1

    def rows(self) -> Iterator[PlanRow]:
        """The rows as records, for tests and readers; the hot path uses the columns."""
        columns = (self.seq_ids, self.positions, self.num_tokens, self.slot_starts, self.context_lens, self.num_samples)
        return map(PlanRow._make, zip(*(column.tolist() for column in columns), strict=True))


class StepResult(NamedTuple):
    """What an executor reports.

    Attributes:
        durations: [repeats] ns of each step carried out, predicted or measured; stalls included.
        stopped: rows (ascending) whose sequence drew its last token in the last of these steps.
        breakdown: ns of each of `PHASES`, which add up to the step; empty where it is predicted.
    """

    durations: IntArray
    stopped: IntArray
    breakdown: tuple[int, ...] = ()


class PoolUsage(NamedTuple):
    """A pool as its allocator sees it, in token slots; knows nothing of output lengths.

    Attributes:
        total: slots of the pool.
        resident: tokens stored.
        held: slots that sequences hold, resident or not.
        free: slots that nobody holds, counted from the free lists.
        grants: tokens promised to each holder (its reservation before rounding); empty where
            storage grows on demand. By reference.
        version: changes whenever `grants` does.
    """

    total: int
    resident: int
    held: int
    free: int
    grants: Mapping[int, int]
    version: int
