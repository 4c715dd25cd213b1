"""How far a run is, on a terminal."""

from __future__ import annotations

import time
from typing import TextIO

from kvsim.plan import StepPlan, StepResult
from kvsim.protocols import Executor

INTERVAL_S = 0.1
CLEAR_LINE = "\r\x1b[K"


class ProgressExecutor:
    """An executor that also keeps one line of a terminal up to date, ten times a second.

    Args:
        executor: does the work.
        stream: the terminal.
    """

    def __init__(self, executor: Executor, stream: TextIO) -> None:
        self._executor = executor
        self._stream = stream
        self._due = time.monotonic() + INTERVAL_S

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        """See `Executor`."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + INTERVAL_S
            queues = f"{plan.num_running} running, {plan.num_waiting} waiting"
            self._stream.write(f"{CLEAR_LINE}simulated {now / 1e9:.0f} s, step {plan.step}: {queues}")
            self._stream.flush()
        return self._executor.execute(plan, now, max_repeats, until)

    def clear(self) -> None:
        """Leave the line empty."""
        self._stream.write(CLEAR_LINE)
        self._stream.flush()
