"""One case: a system under a load, simulated, measured, replayed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kvsim.calibrate.measure import Say, StepRecorder
from kvsim.plan import IntArray
from kvsim.protocols import CostModel
from kvsim.results import RunFolder
from kvsim.run import Run
from kvsim.units import NS_PER_S
from kvsim.validate.compare import (
    Case,
    Row,
    Setting,
    StepError,
    Tolerance,
    compare,
    end_to_end,
    parity_row,
    step_rows,
)
from kvsim.validate.lockstep import Lockstep, predict
from kvsim.validate.parity import TableRecorder, repeats_decisions
from kvsim.validate.steps import write_steps


class Sides(NamedTuple):
    """What builds a run of the case's workload.

    Attributes:
        simulated: with predicted durations.
        measured: on the device.
        replayed: with the durations of the run in a folder.
        cost: predicts.
    """

    simulated: Callable[[], Run]
    measured: Callable[[], Run]
    replayed: Callable[[Path], Run]
    cost: CostModel


class CaseResult(NamedTuple):
    """Rows of a case, what it was measured with, and [steps] predicted and measured ns of its plan replay."""

    rows: list[Row]
    setting: Setting
    predicted: IntArray
    measured: IntArray


def setting_of(simulated: Run, measured: Run, num_requests: int) -> Setting:
    """What these two sides of a case are."""
    labels = measured.labels
    return Setting(
        model=str(labels["model"]),
        hardware=str(labels["hardware"]),
        workload=str(labels["workload"]),
        cost=str(simulated.labels["cost"]),
        kv_num_blocks=int(str(labels["kv_num_blocks"])),
        num_requests=num_requests,
        device=measured.environment.get("device"),
    )


def validate_case(
    case: Case, setting: Setting, sides: Sides, folder: Path, *, repeats: int, limits: Tolerance, say: Say
) -> CaseResult:
    """Carry out a simulation, `repeats` measured runs with their replays, and the plan replay; folders in `folder`."""
    summary = execute(sides.simulated(), folder / "simulated")
    simulated = end_to_end(folder / "simulated", summary)
    measured, rows = [], []
    for repeat in range(repeats):
        place = folder / f"measured_{repeat}"
        run = sides.measured()
        recorder = TableRecorder(run.executor)
        summary = execute(dataclasses.replace(run, executor=recorder), place)
        say(f"{case.system} {case.load}: measured run {repeat + 1} of {repeats}, {_extent(recorder)}")
        measured.append(end_to_end(place, summary))
        again, requests = folder / f"replayed_{repeat}", place / "requests.parquet"
        rows.append(parity_row(case, repeats_decisions(sides.replayed(place), again, recorder, requests)))
        error = StepError.of(np.array(predict(recorder, sides.cost)), np.array(recorder.durations))
        rows += step_rows(case, "closed", error, None)
    run = sides.measured()
    lockstep = Lockstep(run.executor, sides.cost)
    execute(dataclasses.replace(run, executor=lockstep), folder / "plan_replay")
    say(f"{case.system} {case.load}: plan replay, {_extent(lockstep)}")
    write_steps(folder / "steps.csv", lockstep)
    predicted, durations = np.array(lockstep.predicted), np.array(lockstep.durations)
    rows += step_rows(case, "replay", StepError.of(predicted, durations), limits.step)
    rows += compare(case, simulated, measured, limits)
    return CaseResult(rows, setting, predicted, durations)


def execute(run: Run, path: Path) -> dict[str, object]:
    """Carry `run` out in the folder `path`; its summary. No decision log: writing it would be measured too."""
    with RunFolder(path) as folder:
        return dict(run.execute(folder))


def _extent(recorder: StepRecorder) -> str:
    return f"{len(recorder.plans):,} steps, {sum(recorder.durations) / NS_PER_S:.1f} s"
