"""Engines whose step times are known, in place of a device."""

from __future__ import annotations

import dataclasses

import numpy as np

from kvsim.config import build, compose
from kvsim.executor import SimExecutor
from kvsim.plan import StepPlan, StepResult
from kvsim.protocols import CostModel
from kvsim.run import Run
from kvsim.workload.outcomes import Outcomes

WORDS = ("model=opt-13b", "hardware=h200", "workload=sharegpt", "rate=50", "duration=4", "engine.drain=false")
BUCKETS = {"decode": (1, 2, 4, *range(8, 65, 8)), "mixed": (*range(16, 257, 16), *range(320, 1025, 64)),
           "samples": (1, 8, 32, 64)}  # fmt: skip


class Machine(SimExecutor):
    """Pads, takes host time, and is never quite as fast twice."""

    def __init__(self, cost: CostModel, outcomes: Outcomes, *, noise: float, host_us: tuple[float, float] = (0, 0)):
        super().__init__(cost, outcomes)
        self.buckets = BUCKETS
        self._noise = noise
        self._host = host_us
        self._rng = np.random.default_rng(1)

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        result = super().execute(plan, now, 1, until)
        factor = 1 + self._noise * abs(self._rng.normal()) + (5 * self._noise if self._rng.random() < 0.02 else 0)
        forward = round(int(result.durations[0]) * factor)
        fixed, per_row = self._host
        host = round(1000 * (fixed + per_row * (len(plan.seq_ids) + plan.idle_rows)))
        return StepResult(np.array([forward + host]), result.stopped, (host // 2, host - host // 2, forward, 0))


def sim_run(*words: str) -> Run:
    return build(compose([*WORDS, *words]))


def machine_run(cost: CostModel, noise: float, host_us: tuple[float, float], *words: str) -> Run:
    run = sim_run(*words)
    return dataclasses.replace(run, executor=Machine(cost, run.outcomes, noise=noise, host_us=host_us))
