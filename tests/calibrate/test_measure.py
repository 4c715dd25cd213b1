"""Measuring and keeping what was measured."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kvsim.calibrate.grid import Step
from kvsim.calibrate.measure import buckets_of, measure_grid, spread, taking_turns
from kvsim.calibrate.plans import PlanMaker, Row
from kvsim.calibrate.points import Buckets, Measured, Point, read_points, write_points
from kvsim.cost.shape import StepShape
from kvsim.errors import ConfigError
from kvsim.plan import NO_ROWS, StepPlan, StepResult
from kvsim.workload.outcomes import Outcomes


class Clock:
    """An executor whose visits to a step find it slow at first, then settled: ms given in turn, the last for ever."""

    def __init__(self, outcomes: Outcomes, ms: Sequence[float]) -> None:
        self._outcomes = outcomes
        self._ms = ms
        self.plans: list[StepPlan] = []

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        assert not len(self._outcomes.draw(plan, 1))
        self.plans.append(plan)
        nth = sum(plan.step == earlier.step for earlier in self.plans) - 1
        ns = round(1e6 * self._ms[min(nth, len(self._ms) - 1)]) + plan.step
        return StepResult(np.array([ns + 777]), NO_ROWS, (700, 70, ns, 7))


def steps(count: int) -> list[Step]:
    maker = PlanMaker(100, 16, False, np.random.default_rng(0))
    return [Step("decode", maker.make([Row(1, 30 + number)] * 2)) for number in range(count)]


def measure(ms: Sequence[float], *, repeats: int, max_seconds: float = 60.0) -> tuple[list[Point], Clock]:
    outcomes = Outcomes()
    clock = Clock(outcomes, ms)
    rng = np.random.default_rng(1)
    points = measure_grid(
        steps(5), clock, outcomes, repeats=repeats, max_seconds=max_seconds, rng=rng, say=lambda line: None
    )
    return points, clock


def test_medians_of_settled_repeats_without_the_host() -> None:
    points, clock = measure([30, 6, 2, 4, 9], repeats=3)  # each visit ends after 2 and 4 more, beyond 40 ms
    assert [point.device_ns // 1_000_000 for point in points] == [2] * 5  # of 2 2 2 4 4 4 the lower one
    assert [(point.host_ns, point.times) for point in points] == [(0, 6)] * 5
    visits = [list(plans) for _, plans in itertools.groupby(clock.plans, key=lambda plan: plan.step)]
    assert len(visits) == 15 and all(len(plans) == 4 for plans in visits)
    contexts = [int(plans[0].context_lens[0]) for plans in visits]
    passes = [contexts[start : start + 5] for start in range(0, 15, 5)]
    assert all(sorted(one) == [30, 31, 32, 33, 34] for one in passes) and len(set(map(tuple, passes))) > 1
    for before, after in itertools.pairwise(visits):
        assert after[0].released == tuple(before[0].seq_ids.tolist())
        assert not any(plan.released for plan in after[1:])


@pytest.mark.parametrize(("ms", "count", "times"), [([50.0], 1, 1), ([30.0], 2, 1), ([1.0], 8, 6), ([0.0], 8, 6)])
def test_short_steps_are_repeated_and_the_last_repeat_counts(ms: list[float], count: int, times: int) -> None:
    points, clock = measure(ms, repeats=1)
    assert len(clock.plans) == 5 * count
    assert {point.times for point in points} == {times}


def test_kinds_take_turns() -> None:
    rng = np.random.default_rng(2)
    kinds = ["a"] * 30 + ["b"] * 10
    order = taking_turns(kinds, rng)
    assert sorted(order) == list(range(40)) and order != taking_turns(kinds, rng)
    named = "".join(kinds[index] for index in order)
    assert all(named[start : start + 4].count("b") == 1 for start in range(0, 40, 4))


def test_no_step_starts_after_the_time() -> None:
    points, clock = measure([50], repeats=1, max_seconds=-1.0)
    assert points == [] and clock.plans == []


def test_an_executor_without_buckets_pads_nothing() -> None:
    clock = Clock(Outcomes(), [1])
    assert buckets_of(clock) == Buckets()
    clock.buckets = {"decode": [4, 2], "mixed": ()}  # type: ignore[attr-defined]
    assert buckets_of(clock) == Buckets((2, 4), (), ())


def test_spread() -> None:
    assert spread(range(10), 20) == list(range(10))
    assert spread(range(10), 5) == [0, 2, 4, 6, 8]


def test_points_survive_their_file(tmp_path: Path) -> None:
    shape = StepShape(3, 2, 12, 2, 500, 300, 80, 10, 4, 0)
    points = [Point("mixed", shape, 12345, 0, 4), Point("run vllm_v1", shape, 999, 55)]
    measured = Measured("opt-13b", 13, Buckets((1, 2), (), (8,)), {"device": "H200, driver 1"}, points)
    write_points(tmp_path / "p.csv", measured)
    assert read_points(tmp_path / "p.csv") == measured
    assert [point.in_run for point in points] == [False, True]


@pytest.mark.parametrize("text", ["", "# {}\nkind\n", "a,b\n1,2\n", '# {"model": "m", "buckets": {"decode": 3}}\n'])
def test_a_file_of_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ConfigError, match="line 1: no points of kvsim calibrate; name another file"):
        read_points(tmp_path / "p.csv")
    with pytest.raises(ConfigError, match="No such file or directory"):
        read_points(tmp_path / "q.csv")
