"""ConstantCost and its option file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from kvsim.cost.constant import ConstantCost
from kvsim.errors import ConfigError
from kvsim.plan import NO_ROWS, StepPlan

PLAN = StepPlan(0, NO_ROWS, NO_ROWS, NO_ROWS, NO_ROWS, NO_ROWS, NO_ROWS, {}, 0, 0, 0)


def test_every_step_is_equally_long() -> None:
    durations = ConstantCost(0.025).decode_run(PLAN, 3)
    assert durations.tolist() == [25_000_000] * 3
    assert durations.dtype == np.int64


def test_option_file() -> None:
    node = OmegaConf.load(Path(__file__).parents[2] / "conf" / "cost" / "constant.yaml")
    assert instantiate(node, seconds=1).decode_run(PLAN, 1).tolist() == [10**9]


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), True, "1", 1e-10, 1e7, None])
def test_bad_seconds(seconds: object) -> None:
    with pytest.raises(ConfigError, match=r"cost\.seconds="):
        ConstantCost(seconds)  # type: ignore[arg-type]
