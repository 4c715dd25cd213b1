"""The loop that joins arrivals, decisions and execution on one clock. The only module that imports SimPy."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from kvsim.errors import InvariantError
from kvsim.metrics import Metric
from kvsim.plan import NO_ROWS, UNBOUNDED, StepPlan, StepResult
from kvsim.protocols import Arrival, Executor, KVAllocator, Scheduler, Workload
from kvsim.record.recorder import Recorder
from kvsim.request import Status
from kvsim.workload.outcomes import Outcomes

CHECK_EVERY = 4096
"""Plans between two full checks of the allocator's books."""


class Engine:
    """One server: requests arrive, the scheduler decides, the executor says how long it took.

    At equal instants a step's end comes first, then arrivals by row, then the next decision.

    Args:
        duration_ns: clock at which to stop with `drain` false; None runs to the last completion.
        fast_forward: jump over identical decode steps; the results are the same.
    """

    def __init__(
        self,
        workload: Workload,
        scheduler: Scheduler,
        allocator: KVAllocator,
        executor: Executor,
        outcomes: Outcomes,
        recorder: Recorder,
        *,
        duration_ns: int | None = None,
        drain: bool = True,
        fast_forward: bool = True,
    ) -> None:
        self._workload = workload
        self._scheduler = scheduler
        self._allocator = allocator
        self._executor = executor
        self._outcomes = outcomes
        self._recorder = recorder
        self._end = UNBOUNDED if drain or duration_ns is None else duration_ns
        self._fast_forward = fast_forward
        self._env = simpy.Environment(initial_time=0)
        self._next: Arrival | None = None
        self._in_flight: tuple[StepPlan, StepResult] | None = None

    def run(self) -> dict[str, Metric]:
        """Run to the end, close the books and sum up.

        Raises:
            InvariantError: a law was broken; nothing of the run can be trusted.
        """
        self._next = self._workload.next_arrival()
        process = self._env.process(self._steps())
        if self._end == UNBOUNDED:
            self._env.run(process)
        else:
            # what falls on the last instant still counts
            self._env.run(self._end + 1)
            self._take_arrivals(self._end - 1)
        now = min(int(self._env.now), self._end)
        if self._in_flight is not None:
            # cut short: what was computed counts, but nobody ended
            plan, result = self._in_flight
            result = result._replace(stopped=NO_ROWS)
            self._recorder.end_plan(plan, result, self._scheduler.update(plan, result, now), now)
        for seq in self._scheduler.abort_all():
            self._recorder.end_request(seq, Status.UNFINISHED, now)
        self._check_books(final=True)
        return self._recorder.finish(now)

    def _steps(self) -> Generator[simpy.Event, Any, None]:
        env, scheduler, recorder, executor = self._env, self._scheduler, self._recorder, self._executor
        plans = 0
        while True:
            now = int(env.now)
            if now >= self._end:
                return
            self._take_arrivals(now)
            plan = scheduler.schedule(now)
            if not len(plan.seq_ids):
                if self._next is None or plan.num_waiting:
                    break
                yield env.timeout(self._next.request.arrival_ns - now)
                continue
            usage = self._allocator.usage()
            until = self._end if self._next is None else min(self._end, self._next.request.arrival_ns)
            result = executor.execute(plan, now, self._max_repeats(plan), until)
            growth = scheduler.advance(plan, len(result.durations))
            recorder.begin_plan(plan, now, result, usage, growth)
            self._in_flight = plan, result
            durations = result.durations
            span = sum(durations.tolist())
            if span <= 0:
                raise InvariantError("INV-clock", f"step {plan.step} lasts {span} ns")
            yield env.timeout(span)
            self._in_flight = None
            now = int(env.now)
            recorder.end_plan(plan, result, scheduler.update(plan, result, now), now)
            plans += 1
            if plans % CHECK_EVERY == 0:
                self._check_books()
        if scheduler.num_unfinished:
            raise InvariantError(
                "INV-progress", f"{scheduler.num_unfinished} requests are left at {int(env.now)} ns and none can run"
            )

    def _max_repeats(self, plan: StepPlan) -> int:
        if plan.max_repeats == 1 or not self._fast_forward:
            return 1
        return min(plan.max_repeats, self._outcomes.steps_to_finish(plan))

    def _take_arrivals(self, now: int) -> None:
        while self._next is not None and self._next.request.arrival_ns <= now:
            request, num_output_tokens = self._next
            reason = self._misfit(request.num_prompt_tokens, num_output_tokens)
            if reason is None:
                self._outcomes.add(request.request_id, num_output_tokens)
                self._scheduler.add_request(request, now)
                self._recorder.arrive(request, num_output_tokens, self._scheduler.num_waiting)
            else:
                self._recorder.reject(request, num_output_tokens, reason)
            self._next = self._workload.next_arrival()

    def _misfit(self, prompt: int, output: int) -> str | None:
        """Why a request can never run; None if it can."""
        total = prompt + output
        if prompt < 1:
            return "the prompt is empty"
        if output < 1:
            return "no output tokens are asked for"
        if total > self._scheduler.max_model_len:
            return f"prompt + output {total} > max_model_len {self._scheduler.max_model_len}"
        if total > self._allocator.max_sequence_tokens:
            return f"prompt + output {total} > {self._allocator.max_sequence_tokens}, the most the empty pool holds"
        if total > self._scheduler.max_prompt_tokens:
            return (
                f"prompt + output {total} > max_num_batched_tokens {self._scheduler.max_prompt_tokens} without chunks"
            )
        return None

    def _check_books(self, final: bool = False) -> None:
        self._allocator.check_integrity()
        usage = self._allocator.usage()
        if final and (usage.free != usage.total or usage.resident):
            raise InvariantError(
                "INV-blocks",
                f"{usage.free} of {usage.total} slots free, {usage.resident} tokens resident after the end",
            )
