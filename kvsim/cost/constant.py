"""A cost model for tests and for studies of policy alone: every step lasts equally long."""

from __future__ import annotations

import numpy as np

from kvsim.checks import check_number
from kvsim.plan import IntArray, StepPlan


class ConstantCost:
    """Every step lasts `seconds`, whatever is in it.

    Raises:
        ConfigError: not a number from 1 ns to 1e6 s.
    """

    def __init__(self, seconds: float) -> None:
        check_number("cost.seconds", seconds, 1e-9, 1e6)
        self._step_ns = round(seconds * 1e9)

    def decode_run(self, plan: StepPlan, repeats: int) -> IntArray:
        """[repeats] ns, all equal."""
        return np.full(repeats, self._step_ns, dtype=np.int64)
