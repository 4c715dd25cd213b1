"""Figure 13 of the vLLM paper: sequences in a step, on average. Shared by its two halves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.plots.figures import paired_bars
from kvsim.reproduce.base import Band, Outcome, Row
from kvsim.reproduce.runner import Runner

SEEDS = range(4)
EXACT = 1e-9
"""Relative tolerance of a number that no chance enters."""


class Batch(NamedTuple):
    """A bar of the figure; `tolerance` is relative, None for a bar that is only reported, and `note` says why."""

    label: str
    system: str
    paper: float
    tolerance: float | None
    overrides: tuple[str, ...] = ()
    note: str = ""


def compare_batches(runner: Runner, experiment: str, batches: Sequence[Batch]) -> Outcome:
    """Mean batch of every bar under `experiment`, means of the seeds."""

    def measure(bar: Batch) -> float:
        overrides = (f"experiment={experiment}", f"system={bar.system}", *bar.overrides)
        return runner.mean("mean_batch_size", *overrides, seeds=SEEDS)

    ours = dict(zip(batches, runner.map(measure, batches), strict=True))
    rows = [
        Row(
            bar.label,
            bar.paper,
            ours[bar],
            "sequences",
            None if bar.tolerance is None else Band.relative(bar.paper, bar.tolerance),
            note=bar.note,
        )
        for bar in batches
    ]
    paper_bars = {bar.label: bar.paper for bar in batches}
    our_bars = {bar.label: size for bar, size in ours.items()}
    return Outcome(rows, lambda: paired_bars(paper_bars, our_bars, "sequences in a step, mean"))
