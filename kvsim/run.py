"""`Run`: one experiment with all its parts, ready to be carried out."""

from __future__ import annotations

from dataclasses import dataclass

from kvsim.protocols import Executor, KVAllocator, Scheduler, Workload
from kvsim.specs import HardwareSpec, ModelSpec
from kvsim.workload.outcomes import Outcomes


@dataclass(frozen=True)
class Run:
    """The parts of one experiment.

    Attributes:
        pool_tokens: slots of the pool.
        warmup_ns: time left out of the summary.
        duration_ns: the run takes no arrivals after it; None: no limit.
        drain: False stops the run at `duration_ns`.
        fast_forward: jump over identical decode steps.
        record_plans, record_blocks: also write the decision log, the block map.
    """

    system: str
    model: ModelSpec
    hardware: HardwareSpec
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
