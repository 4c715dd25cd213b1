"""`Recorder`: what the engine tells as it runs, and what becomes of it at the end."""

from __future__ import annotations

from collections.abc import Sequence as Sized

import numpy as np

from kvsim.latency import NO_SLO, SLO
from kvsim.metrics import Metric, StepTotals, summarize
from kvsim.plan import NO_ROWS, IntArray, PoolUsage, StepPlan, StepResult
from kvsim.record.files import RunFiles
from kvsim.record.logs import Observer
from kvsim.record.memory import MemoryLedger
from kvsim.record.requests import RequestTable
from kvsim.record.steps import StepTable
from kvsim.request import Request, Sequence, Status

FLUSH_PLANS = 4096
"""Plans kept before they become rows."""


class Recorder:
    """Collects requests, steps and memory of one run.

    Args:
        totals: what the summary needs of the steps, over its window.
        files: where the rows go; None keeps only the summary.
        observers: those who see every plan.
        slo: what the summary counts as goodput.
    """

    def __init__(
        self,
        totals: StepTotals,
        files: RunFiles | None = None,
        observers: Sized[Observer] = (),
        slo: SLO = NO_SLO,
    ) -> None:
        self._totals = totals
        self._slo = slo
        self._files = files
        self._observers = observers
        self._requests = RequestTable()
        self._steps = StepTable()
        self._ledger = MemoryLedger()
        self._step_ends: list[IntArray] = []

    def arrive(self, request: Request, num_output_tokens: int, num_waiting: int) -> None:
        """A request was queued; `num_waiting` now wait, it included."""
        self._requests.arrive(request, num_output_tokens, num_waiting)
        self._ledger.expect(request.request_id, request.num_prompt_tokens + num_output_tokens)

    def reject(self, request: Request, num_output_tokens: int, reason: str) -> None:
        """A request came that can never run."""
        self._requests.reject(request, num_output_tokens, reason)

    def begin_plan(self, plan: StepPlan, now: int, result: StepResult, usage: PoolUsage, growth: IntArray) -> None:
        """`plan`, decided at `now` over a pool in state `usage`, is carried out; `growth` is `Scheduler.advance`'s."""
        durations = result.durations
        emitted = self._requests.emit(plan, len(durations), now + int(durations[0]))
        reserved = self._ledger.reservations(usage)
        self._steps.add(plan, now, durations, growth, emitted, usage, reserved, result.breakdown)
        for observer in self._observers:
            observer.begin(plan, now, durations)
        if len(self._steps) == FLUSH_PLANS:
            self._flush()

    def end_plan(self, plan: StepPlan, result: StepResult, ended: list[Sequence], now: int) -> None:
        """The plan is done; the sequences in `ended` completed with it at `now`."""
        if len(result.stopped):
            longer = len(result.durations) - 1
            for row in result.stopped.tolist():
                self._ledger.stop(int(plan.seq_ids[row]), int(plan.context_lens[row]) + longer)
        for seq in ended:
            self.end_request(seq, Status.COMPLETED, now)
        for observer in self._observers:
            observer.end(ended, now)

    def end_request(self, seq: Sequence, status: Status, now: int) -> None:
        """A queued request ended."""
        self._ledger.forget(seq.seq_id)
        self._requests.end(seq, status, now)

    def finish(self, now: int) -> dict[str, Metric]:
        """The run is over: write what is left and sum up."""
        self._flush()
        for observer in self._observers:
            observer.close(now)
        self._requests.cut(now)
        columns = self._requests.columns()
        step_ends = np.concatenate(self._step_ends) if self._step_ends else NO_ROWS
        stalls = self._requests.stalls(columns)
        summary = summarize(columns, self._totals, step_ends, stalls, *self._requests.queue(), slo=self._slo)
        if self._files is not None:
            self._files.write_requests(columns, self._requests.reasons(columns.request_id), step_ends)
        return summary

    def _flush(self) -> None:
        if not len(self._steps):
            return
        columns = self._steps.expand()
        self._step_ends.append(columns["start_ns"] + columns["duration_ns"])
        self._totals.add(columns)
        if self._files is not None:
            self._files.write_steps(columns)
