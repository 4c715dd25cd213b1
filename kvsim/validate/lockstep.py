"""`Lockstep`: the clock of the simulation over the work of a device."""

from __future__ import annotations

import numpy as np

from kvsim.calibrate.measure import StepRecorder
from kvsim.plan import StepPlan, StepResult
from kvsim.protocols import CostModel, Executor


class Lockstep(StepRecorder):
    """Every plan is carried out and measured, but time passes as the cost model predicts.

    Attributes:
        predicted: ns of each step.
    """

    def __init__(self, executor: Executor, cost: CostModel) -> None:
        super().__init__(executor)
        self._cost = cost
        self.predicted: list[int] = []

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        """See `Executor`."""
        result = super().execute(plan, now, max_repeats, until)
        return StepResult(np.array([self.predicted[-1]]), result.stopped)

    def note(self, plan: StepPlan) -> None:
        """Predict it."""
        self.predicted.append(int(self._cost.decode_run(plan, 1)[0]))


def predict(recorder: StepRecorder, cost: CostModel) -> list[int]:
    """Ns that `cost` predicts for every step that was recorded."""
    return [int(cost.decode_run(plan, 1)[0]) for plan in recorder.plans]
