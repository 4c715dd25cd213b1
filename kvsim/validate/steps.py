"""Every step of a plan replay in a table, to see where a prediction goes wrong."""

from __future__ import annotations

import csv
from pathlib import Path

from kvsim.atomic import replacing
from kvsim.cost.shape import StepShape
from kvsim.validate.lockstep import Lockstep


def write_steps(path: Path, lockstep: Lockstep) -> None:
    """Write CSV: the sizes of each step, predicted and measured ns, and of the measured ones the device's."""
    with replacing(path) as staged, staged.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("step", *StepShape._fields, "predicted_ns", "measured_ns", "device_ns"))
        for index, plan in enumerate(lockstep.plans):
            times = (lockstep.predicted[index], lockstep.durations[index], lockstep.device_ns(index))
            writer.writerow((plan.step, *StepShape.of(plan), *times))
