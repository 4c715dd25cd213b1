"""The progress line of a terminal."""

from __future__ import annotations

import io

import numpy as np
import pytest

from kvsim.plan import NO_ROWS, StepPlan, StepResult
from kvsim.progress import ProgressExecutor

PLAN = StepPlan(7, *[NO_ROWS] * 6, {}, 0, 0, 0, num_waiting=3, num_running=2)
RESULT = StepResult(np.ones(1, dtype=np.int64), NO_ROWS)


class Fixed:
    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        assert (plan, now, max_repeats, until) == (PLAN, 5_000_000_000, 4, 9)
        return RESULT


def test_passes_on_and_shows_at_most_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    executor = ProgressExecutor(Fixed(), stream)
    for clock[0] in (0.05, 0.11, 0.12, 0.20, 0.22):
        assert executor.execute(PLAN, 5_000_000_000, 4, 9) is RESULT
    assert stream.getvalue().count("simulated 5 s, step 7: 2 running, 3 waiting") == 2
    executor.clear()
    assert stream.getvalue().endswith("\r\x1b[K")
