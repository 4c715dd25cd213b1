"""Measuring and keeping what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kvsim.calibrate.grid import Step
from kvsim.calibrate.measure import buckets_of, measure_grid, spread
from kvsim.calibrate.plans import PlanMaker, Row
from kvsim.calibrate.points import Buckets, Measured, Point, read_points, write_points
from kvsim.cost.shape import StepShape
from kvsim.errors import ConfigError
from kvsim.plan import NO_ROWS, StepPlan, StepResult
from kvsim.workload.outcomes import Outcomes


class Clock:
    """An executor whose steps take the milliseconds given, in turn, the first pass ten times as long."""

    def __init__(self, outcomes: Outcomes, passes: list[int], steps: int) -> None:
        self._outcomes = outcomes
        self._passes = passes
        self._steps = steps
        self.plans: list[StepPlan] = []

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        assert not len(self._outcomes.draw(plan, 1))
        ns = 1_000_000 * self._passes[len(self.plans) // self._steps]
        self.plans.append(plan)
        return StepResult(np.array([ns + 777]), NO_ROWS, (700, 70, ns, 7))


def steps(count: int) -> list[Step]:
    maker = PlanMaker(100, 16, False, np.random.default_rng(0))
    return [Step("decode", maker.make([Row(1, 30 + number)] * 2)) for number in range(count)]


def measure(passes: list[int], *, repeats: int, max_seconds: float = 60.0) -> tuple[list[Point], Clock]:
    outcomes = Outcomes()
    clock = Clock(outcomes, passes, 5)
    rng = np.random.default_rng(1)
    points = measure_grid(
        steps(5), clock, outcomes, repeats=repeats, max_seconds=max_seconds, rng=rng, say=lambda line: None
    )
    return points, clock


def test_medians_of_all_passes_but_the_first_without_the_host() -> None:
    points, clock = measure([50, 4, 5, 9], repeats=3)
    assert [(point.device_ns, point.host_ns, point.times) for point in points] == [(5_000_000, 0, 3)] * 5
    contexts = [int(plan.context_lens[0]) for plan in clock.plans]
    passes = [contexts[start : start + 5] for start in range(0, 20, 5)]
    assert all(sorted(one) == [30, 31, 32, 33, 34] for one in passes) and len(set(map(tuple, passes))) > 1
    released = [plan.released for plan in clock.plans]
    assert released[1:] == [tuple(plan.seq_ids.tolist()) for plan in clock.plans[:-1]]
    assert [plan.step for plan in clock.plans] == list(range(20))


def test_the_first_pass_counts_where_it_was_the_only_one() -> None:
    points, _ = measure([50], repeats=0)
    assert [(point.device_ns, point.times) for point in points] == [(50_000_000, 1)] * 5


def test_no_step_starts_after_the_time() -> None:
    points, clock = measure([50], repeats=0, max_seconds=-1.0)
    assert points == [] and clock.plans == []


def test_an_executor_without_buckets_pads_nothing() -> None:
    clock = Clock(Outcomes(), [1], 1)
    assert buckets_of(clock) == Buckets()
    clock.buckets = {"decode": [4, 2], "mixed": ()}  # type: ignore[attr-defined]
    assert buckets_of(clock) == Buckets((2, 4), (), ())


def test_spread() -> None:
    assert spread(range(10), 20) == list(range(10))
    assert spread(range(10), 5) == [0, 2, 4, 6, 8]


def test_points_survive_their_file(tmp_path: Path) -> None:
    shape = StepShape(3, 2, 12, 2, 500, 300, 80, 10, 4, 0)
    points = [Point("mixed", shape, 12345, 0, 4), Point("run vllm_v1", shape, 999, 55)]
    measured = Measured("opt-13b", Buckets((1, 2), (), (8,)), {"device": "H200, driver 1"}, points)
    write_points(tmp_path / "p.csv", measured)
    assert read_points(tmp_path / "p.csv") == measured
    assert [point.in_run for point in points] == [False, True]


@pytest.mark.parametrize("text", ["", "# {}\nkind\n", "a,b\n1,2\n", '# {"model": "m", "buckets": {"decode": 3}}\n'])
def test_a_file_of_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ConfigError, match="no points of kvsim calibrate in it"):
        read_points(tmp_path / "p.csv")
    with pytest.raises(ConfigError, match="No such file or directory"):
        read_points(tmp_path / "q.csv")
