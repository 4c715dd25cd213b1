"""`Run`: one experiment with all its parts, ready to be carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from kvsim.engine import Engine
from kvsim.latency import NO_SLO, SLO
from kvsim.metrics import Metric, StepTotals
from kvsim.progress import ProgressExecutor
from kvsim.protocols import Executor, KVAllocator, Scheduler, Workload
from kvsim.record.files import RunFiles
from kvsim.record.logs import BlockObserver, Observer, PlanObserver
from kvsim.record.recorder import Recorder
from kvsim.results import BLOCK_COLUMNS, RunFolder
from kvsim.workload.outcomes import Outcomes

Label = str | int | float | None


@dataclass(frozen=True)
class Run:
    """The parts of one experiment; good for one execution.

    Attributes:
        labels: what tells the run from others in its summary: system, model, hardware, workload, executor, rate, seed.
        pool_tokens: slots of the pool.
        warmup_ns: time left out of the summary.
        duration_ns: the run takes no arrivals after it; None: no limit.
        drain: False stops the run at `duration_ns`.
        fast_forward: jump over identical decode steps.
        record_plans, record_blocks: also write the decision log, the block map.
        slo: limits on the latencies of a request, for goodput.
    """

    labels: dict[str, Label]
    workload: Workload
    scheduler: Scheduler
    allocator: KVAllocator
    executor: Executor
    outcomes: Outcomes
    pool_tokens: int
    warmup_ns: int
    duration_ns: int | None
    drain: bool
    fast_forward: bool
    record_plans: bool
    record_blocks: bool
    slo: SLO = NO_SLO

    @property
    def environment(self) -> Mapping[str, str | None]:
        """What the executor says that its measurements depend on; empty where time is predicted."""
        found: Mapping[str, str | None] = getattr(self.executor, "environment", {})
        return found

    def execute(self, folder: RunFolder | None = None, terminal: TextIO | None = None) -> dict[str, Label | Metric]:
        """Carry the run out.

        Args:
            folder: an open folder that takes the results; None keeps the summary only.
            terminal: shows how far the run is.

        Returns:
            The summary: labels, then metrics.

        Raises:
            InvariantError: a law was broken; nothing of the run can be trusted.
        """
        totals = StepTotals(self.warmup_ns, None if self.drain else self.duration_ns, self.pool_tokens)
        recorder = Recorder(totals, RunFiles(folder) if folder else None, self._observers(folder), self.slo)
        progress = ProgressExecutor(self.executor, terminal) if terminal else None
        engine = Engine(
            self.workload,
            self.scheduler,
            self.allocator,
            progress or self.executor,
            self.outcomes,
            recorder,
            duration_ns=self.duration_ns,
            drain=self.drain,
            # blocks are followed from step to step
            fast_forward=self.fast_forward and not self.record_blocks,
        )
        try:
            summary = self.labels | engine.run()
        finally:
            if progress:
                progress.clear()
        if folder:
            folder.write_summary(summary)
        return summary

    def _observers(self, folder: RunFolder | None) -> list[Observer]:
        observers: list[Observer] = []
        if folder and self.record_plans:
            observers.append(PlanObserver(folder.plans()))
        if folder and self.record_blocks:
            observers.append(BlockObserver(folder.parquet("blocks.parquet", BLOCK_COLUMNS)))
        return observers
