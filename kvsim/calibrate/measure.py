"""Measuring: the grid's steps over and over in random order, and every step of a real run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import Protocol, TypeVar

import numpy as np

from kvsim.calibrate.grid import Step
from kvsim.calibrate.points import Buckets, Point
from kvsim.cost.shape import StepShape
from kvsim.plan import PHASES, UNBOUNDED, StepPlan, StepResult
from kvsim.protocols import Executor
from kvsim.workload.outcomes import Outcomes

SAY_EVERY_S = 5.0
VISIT_NS = 40_000_000
MOST_REPEATS = 8
"""A visit repeats its step until it took so long, or so often."""
SETTLING = 2
"""Leading repeats of a visit that are not counted where there are more: what came before is still to be felt."""

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
    """Median device time of every step, in the state that a server is in.

    Each visit repeats its step, since one after an unlike step, or after a pause of the host, takes longer. Kinds take
    turns, since many heavy steps in a row lower the clocks.

    Args:
        outcomes: those of `executor`; nobody in the grid draws the last token.
        repeats: passes over all steps, each in an order of its own.
        max_seconds: no visit starts after so long.
    """
    for step in steps:
        for seq_id in step.plan.seq_ids.tolist():
            outcomes.add(seq_id, UNBOUNDED)
    samples: list[list[int]] = [[] for _ in steps]
    start = said = time.monotonic()
    released: tuple[int, ...] = ()
    kinds = [step.kind for step in steps]
    order = [index for _ in range(repeats) for index in taking_turns(kinds, rng)]
    for number, index in enumerate(order):
        now = time.monotonic()
        if now - start > max_seconds:
            say(f"grid: stopped after {max_seconds:g} s, {number / len(steps):.1f} of {repeats} passes")
            break
        if now - said > SAY_EVERY_S:
            said = now
            say(f"grid: {number} of {len(order)} steps, {now - start:.0f} s")
        plan = steps[index].plan._replace(step=number, released=released)
        released = tuple(plan.seq_ids.tolist())
        samples[index] += visit(executor, plan)
    return [
        Point(step.kind, StepShape.of(step.plan), median_low(taken), 0, len(taken))
        for step, taken in zip(steps, samples, strict=True)
        if taken
    ]


def taking_turns(kinds: Sequence[str], rng: np.random.Generator) -> list[int]:
    """An order of steps of these kinds: random within a kind, each kind spread evenly."""
    names = np.array(kinds)
    place = np.zeros(len(names))
    for name in dict.fromkeys(kinds):
        count = np.count_nonzero(names == name)
        place[names == name] = (rng.permutation(count) + 0.5) / count
    order: list[int] = place.argsort(kind="stable").tolist()
    return order


def visit(executor: Executor, plan: StepPlan) -> list[int]:
    """Device ns of the repeats that count; the last one always does."""
    taken: list[int] = []
    while len(taken) < MOST_REPEATS and sum(taken) < VISIT_NS:
        result = executor.execute(plan, 0, 1, UNBOUNDED)
        plan = plan._replace(released=())
        taken.append(device_ns(int(result.durations[0]), result.breakdown))
    return taken[min(SETTLING, len(taken) - 1) :]


def device_ns(duration: int, breakdown: tuple[int, ...]) -> int:
    """What of a step's `duration` the device took with the launches; all of it where nobody looked."""
    return breakdown[PHASES.index("forward")] if breakdown else duration


class StepRecorder:
    """An executor that also keeps every plan and what it took, one repeat at a time.

    A measured step begins where the one before ended, so what the recorder does in between is taken off again.

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
        self._own_ns = 0

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        """See `Executor`."""
        result = self._without_own_time(self._executor.execute(plan, now, 1, until))
        start = time.perf_counter_ns()
        self.plans.append(plan)
        self.durations.append(int(result.durations[0]))
        self.breakdowns.append(result.breakdown)
        self.note(plan)
        self._own_ns = time.perf_counter_ns() - start
        return result

    def note(self, plan: StepPlan) -> None:
        """What else is kept of a step."""

    def _without_own_time(self, result: StepResult) -> StepResult:
        """What was measured, less what `note` and the rest took after the step before."""
        if not result.breakdown:
            return result
        schedule, *phases = result.breakdown
        own = min(schedule, self._own_ns)
        return result._replace(durations=result.durations - own, breakdown=(schedule - own, *phases))

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
