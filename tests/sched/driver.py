"""The smallest engine: one decision after another, outputs of known length, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from kvsim.plan import StepPlan, StepResult
from kvsim.protocols import KVAllocator, Scheduler
from kvsim.request import Request


class Decision(NamedTuple):
    """What one step decided, as plain values.

    Attributes:
        rows: sequence and new tokens, in plan order.
        samples: of each row.
        contexts: tokens each row sees.
    """

    step: int
    rows: list[tuple[int, int]]
    samples: list[int]
    contexts: list[int]
    num_decodes: int
    preempted: list[int]
    waiting: int
    running: int
    starved: bool
    padding: int
    idle: int


class Driver:
    """Schedules, pretends to execute, and reports who drew the last token."""

    def __init__(self, scheduler: Scheduler, allocator: KVAllocator) -> None:
        self.scheduler = scheduler
        self.allocator = allocator
        self.left: dict[int, int] = {}
        self.ended: list[int] = []
        self.recomputed: dict[int, int] = {}

    def add(self, prompt: int, output: int) -> int:
        """A request arrives; ids count from 0."""
        request_id = len(self.left)
        self.left[request_id] = output
        self.scheduler.add_request(Request(request_id, 0, prompt), now=0)
        return request_id

    def plan(self) -> StepPlan:
        return self.scheduler.schedule(now=0)

    def finish(self, plan: StepPlan, repeats: int = 1) -> list[int]:
        """Carry `plan` out `repeats` times; slots newly held after each, cumulative."""
        growth = self.scheduler.advance(plan, repeats)
        for row in plan.rows():
            self.left[row.seq_id] -= row.num_samples * repeats
            assert self.left[row.seq_id] >= 0, f"sequence {row.seq_id} drew more than it has"
        stopped = [nth for nth, row in enumerate(plan.rows()) if not self.left[row.seq_id]]
        result = StepResult(np.ones(repeats, dtype=np.int64), np.array(stopped, dtype=np.int64))
        ended = self.scheduler.update(plan, result, now=0)
        self.recomputed |= {seq.seq_id: seq.num_recomputed_tokens for seq in ended}
        self.ended += [seq.seq_id for seq in ended]
        self.allocator.check_integrity()
        return growth.tolist()

    def step(self) -> Decision:
        plan = self.plan()
        self.finish(plan)
        return decision(plan)

    def rows(self, steps: int) -> list[list[tuple[int, int]]]:
        """Sequence and new tokens of the next `steps` steps."""
        return [self.step().rows for _ in range(steps)]

    def repeats(self, plan: StepPlan) -> int:
        """How often the engine would carry `plan` out: up to the first end."""
        if plan.max_repeats == 1:
            return 1
        return min(plan.max_repeats, *(self.left[seq_id] for seq_id in plan.seq_ids.tolist()))


def decision(plan: StepPlan, nth: int = 0) -> Decision:
    """Repeat `nth` of a plan: the same rows, each one token further."""
    return Decision(
        step=plan.step + nth,
        rows=[(row.seq_id, row.num_tokens) for row in plan.rows()],
        samples=plan.num_samples.tolist(),
        contexts=(plan.context_lens + nth).tolist(),
        num_decodes=plan.num_decodes,
        preempted=list(plan.preempted),
        waiting=plan.num_waiting,
        running=plan.num_running,
        starved=plan.starved,
        padding=plan.padding_tokens,
        idle=plan.idle_rows,
    )


def drive(scheduler: Any, allocator: Any, jobs: Iterable[tuple[int, int]] = (), **limits: Any) -> Driver:
    """A driver of a scheduler class over an allocator, with these (prompt, output) queued."""
    limits = {"max_model_len": allocator.max_model_len, "max_num_seqs": None, "max_num_batched_tokens": None} | limits
    driver = Driver(scheduler(allocator, **limits), allocator)
    for job in jobs:
        driver.add(*job)
    return driver
