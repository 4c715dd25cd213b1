"""INV-parity: given the measured durations, the simulation decides as the device's run did."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kvsim.calibrate.measure import StepRecorder
from kvsim.errors import ConfigError, InvariantError
from kvsim.plan import StepPlan
from kvsim.results import RunFolder
from kvsim.run import Run

LIVE = "tables"
"""The field of a plan that changes after it; what lies in it is checked where it is read (INV-blocks)."""


def repeats_decisions(replay: Run, folder: Path, measured: Sequence[StepPlan], requests: Path) -> bool:
    """Carry out `replay` in `folder`: whether its plans are those that were measured, and its requests end alike.

    Args:
        requests: the requests.parquet of the measured run.
    """
    recorder = StepRecorder(replay.executor)
    try:
        with RunFolder(folder) as opened:
            dataclasses.replace(replay, executor=recorder, record_plans=True).execute(opened)
    except (ConfigError, InvariantError):
        return False  # it went another way, beyond what was recorded
    same = (folder / "requests.parquet").read_bytes() == requests.read_bytes()
    return same and same_plans(measured, recorder.plans)


def same_plans(first: Sequence[StepPlan], second: Sequence[StepPlan]) -> bool:
    """Whether all plans are equal in every field but the tables."""
    return len(first) == len(second) and all(
        name == LIVE or np.array_equal(getattr(one, name), getattr(other, name))
        for one, other in zip(first, second, strict=True)
        for name in StepPlan._fields
    )
