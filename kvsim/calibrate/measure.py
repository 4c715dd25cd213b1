"""Measuring: the grid's steps over and over in random order, and every step of a real run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from kvsim.calibrate.grid import Step
from kvsim.calibrate.points import Buckets, Point
from kvsim.cost.shape import StepShape
from kvsim.plan import PHASES, UNBOUNDED, StepPlan, StepResult
from kvsim.protocols import Executor
from kvsim.workload.outcomes import Outcomes

SAY_EVERY_S = 5.0

Say = Callable[[str], None]
ItemT = TypeVar("ItemT")


class Bucketed(Protocol):
    """An executor that pads steps to sizes of its own, see `Buckets`."""

    buckets: Mapping[str, Sequence[int]]


def buckets_of(executor: Executor) -> Buckets:
    """The sizes to which `executor` pads; none if it tells of none."""
    sizes: Mapping[str, Sequence[int]] = getattr(executor, "buckets", {})
    return Buckets(**{name: tuple(sorted(sizes.get(name, ()))) for name in Buckets._fields})


def measure_grid(
    steps: Sequence[Step],
    executor: Executor,
    outcomes: Outcomes,
    *,
    repeats: int,
    max_seconds: float,
    rng: np.random.Generator,
    say: Say,
) -> list[Point]:
    """Median device time of every step. The first pass over all warms up, and counts only where it was the only one.

    Args:
        outcomes: those of `executor`; nobody in the grid draws the last token.
        repeats: passes, each in an order of its own, that are counted.
        max_seconds: no step starts after so long.
    """
    for step in steps:
        for seq_id in step.plan.seq_ids.tolist():
            outcomes.add(seq_id, UNBOUNDED)
    samples: list[list[int]] = [[] for _ in steps]
    start = said = time.monotonic()
    released: tuple[int, ...] = ()
    order = np.concatenate([rng.permutation(len(steps)) for _ in range(repeats + 1)]).tolist()
    for number, index in enumerate(order):
        now = time.monotonic()
        if now - start > max_seconds:
            say(f"grid: stopped after {max_seconds:g} s, {number / len(steps):.1f} of {repeats + 1} passes")
            break
        if now - said > SAY_EVERY_S:
            said = now
            say(f"grid: {number} of {len(order)} steps, {now - start:.0f} s")
        plan = steps[index].plan._replace(step=number, released=released)
        released = tuple(plan.seq_ids.tolist())
        result = executor.execute(plan, 0, 1, UNBOUNDED)
        samples[index].append(device_ns(int(result.durations[0]), result.breakdown))
    return [
        Point(
            step.kind, StepShape.of(step.plan), round(float(np.median(taken[1:] or taken))), 0, len(taken[1:] or taken)
        )
        for step, taken in zip(steps, samples, strict=True)
        if taken
    ]


def device_ns(duration: int, breakdown: tuple[int, ...]) -> int:
    """What of a step's `duration` the device took with the launches; all of it where nobody looked."""
    return breakdown[PHASES.index("forward")] if breakdown else duration


class StepRecorder:
    """An executor that also keeps every plan and what it took, one repeat at a time.

    Attributes:
        plans: in order.
        durations: ns of each.
        breakdowns: of each, see `StepResult`.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.plans: list[StepPlan] = []
        self.durations: list[int] = []
        self.breakdowns: list[tuple[int, ...]] = []

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        """See `Executor`."""
        result = self._executor.execute(plan, now, 1, until)
        self.plans.append(plan)
        self.durations.append(int(result.durations[0]))
        self.breakdowns.append(result.breakdown)
        return result

    def device_ns(self, index: int) -> int:
        """Of a step, see `device_ns`."""
        return device_ns(self.durations[index], self.breakdowns[index])

    def points(self, kind: str, most: int) -> list[Point]:
        """At most `most` of the steps, evenly spread; not the first, before which nothing was scheduled."""
        return [
            Point(
                f"run {kind}",
                StepShape.of(self.plans[index]),
                self.device_ns(index),
                self.durations[index] - self.device_ns(index),
            )
            for index in spread(range(1, len(self.plans)), most)
        ]


def spread(items: Sequence[ItemT], most: int) -> list[ItemT]:
    """At most `most` of them, evenly spread."""
    if len(items) <= most:
        return list(items)
    return [items[index * len(items) // most] for index in range(most)]
