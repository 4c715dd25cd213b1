"""INV-parity: given the measured durations, the simulation decides as the device's run did, down to the blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kvsim.calibrate.measure import StepRecorder
from kvsim.errors import ConfigError, InvariantError
from kvsim.plan import StepPlan
from kvsim.protocols import Executor
from kvsim.results import RunFolder
from kvsim.run import Run

LIVE = "tables"
"""The field of a plan that changes after it; `TableRecorder` keeps what was in it."""

Added = tuple[int, tuple[int, ...]]
"""A sequence and the blocks that its table got since it was last scheduled."""


class TableRecorder(StepRecorder):
    """Also keeps how the block tables grow.

    Attributes:
        added: of each step, for the sequences that it schedules.
    """

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self.added: list[list[Added]] = []
        self._known: dict[int, int] = {}

    def note(self, plan: StepPlan) -> None:
        """Keep the new blocks."""
        for seq_id in plan.released:
            self._known.pop(seq_id, None)
        added: list[Added] = []
        for seq_id in plan.seq_ids.tolist():
            table, known = plan.tables[seq_id], self._known.get(seq_id, 0)
            if len(table) != known:
                added.append((seq_id, tuple(table[known:])))
                self._known[seq_id] = len(table)
        self.added.append(added)


def repeats_decisions(replay: Run, folder: Path, measured: TableRecorder, requests: Path) -> bool:
    """Carry out `replay` in `folder`: whether its plans and blocks are the measured ones, and its requests end alike.

    Args:
        requests: the requests.parquet of the measured run.
    """
    recorder = TableRecorder(replay.executor)
    try:
        with RunFolder(folder) as opened:
            dataclasses.replace(replay, executor=recorder, record_plans=True).execute(opened)
    except (ConfigError, InvariantError):
        return False  # it went another way, beyond what was recorded
    same = (folder / "requests.parquet").read_bytes() == requests.read_bytes()
    return same and same_plans(measured.plans, recorder.plans) and measured.added == recorder.added


def same_plans(first: Sequence[StepPlan], second: Sequence[StepPlan]) -> bool:
    """Whether all plans are equal in every field but the tables."""
    return len(first) == len(second) and all(
        name == LIVE or np.array_equal(getattr(one, name), getattr(other, name))
        for one, other in zip(first, second, strict=True)
        for name in StepPlan._fields
    )
