"""A calibration: measure the grid, then real runs, on executors that the caller builds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvsim.calibrate.grid import Grid, Limits
from kvsim.calibrate.measure import Say, StepRecorder, buckets_of, measure_grid
from kvsim.calibrate.plans import PlanMaker
from kvsim.calibrate.points import Measured, Point
from kvsim.calibrate.profile import provenance
from kvsim.run import Run
from kvsim.specs import ModelSpec
from kvsim.streams import stream
from kvsim.units import NS_PER_S

MOST_RUN_POINTS = 500
"""Steps of a run that are kept; neighbours tell the same."""
LOADS = (1.0, 0.2)
"""Shares of the rate asked for, at which every system runs: full batches and small ones."""

MakeRun = Callable[[], Run]


class Effort(NamedTuple):
    """How much is measured, see `CalibrateConfig`."""

    repeats: int
    max_seconds: float
    max_tokens: int
    max_rows: int


def calibrate(
    model: ModelSpec,
    make: MakeRun,
    real_runs: Sequence[tuple[str, MakeRun]],
    effort: Effort,
    command: Sequence[str],
    say: Say,
) -> Measured:
    """Measure the grid on the executor of the run that `make` builds, then carry out `real_runs`, systems' names first.

    Nothing of a run is kept when the next one is built: a device has room for one pool.
    """
    measured = measure_on(model, make(), effort, command, say)
    for system, make_real in real_runs:
        measured.points.extend(run_points(system, make_real(), say))
    return measured


def measure_on(model: ModelSpec, run: Run, effort: Effort, command: Sequence[str], say: Say) -> Measured:
    """The grid, on the executor of `run`."""
    rng = stream(int(run.labels["seed"] or 0), "calibration")
    buckets, block_size = buckets_of(run.executor), run.allocator.block_size
    maker = PlanMaker(run.pool_tokens // block_size, block_size, run.allocator.whole_blocks, rng)
    limits = Limits(effort.max_rows, effort.max_tokens, run.scheduler.max_model_len)
    steps = Grid(maker, buckets, limits, rng).steps()
    say(f"grid: {len(steps)} steps, {effort.repeats} passes in at most {effort.max_seconds:g} s")
    points = measure_grid(
        steps,
        run.executor,
        run.outcomes,
        repeats=effort.repeats,
        max_seconds=effort.max_seconds,
        rng=rng,
        say=say,
    )
    return Measured(model.name, model.num_parameters, buckets, provenance(run.executor, command), points)


def run_points(system: str, run: Run, say: Say) -> list[Point]:
    """Steps of a real run."""
    recorder = StepRecorder(run.executor)
    dataclasses.replace(run, executor=recorder, fast_forward=False).execute()
    say(f"run {system}: {len(recorder.plans)} steps, {sum(recorder.durations) / NS_PER_S:.1f} s")
    return recorder.points(system, MOST_RUN_POINTS)
