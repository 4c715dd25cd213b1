"""Whole engines from plain numbers, run in memory or into a folder; what the whole-engine tests share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from kvsim.engine import Engine
from kvsim.errors import InvariantError
from kvsim.executor import MemoryCheckExecutor, SimExecutor
from kvsim.kv.contiguous import ReserveMax, ReserveOracle, ReservePow2
from kvsim.kv.paged import PagedAllocator
from kvsim.latency import RequestColumns
from kvsim.metrics import MEMORY_CLASSES, Metric, StepTotals
from kvsim.plan import IntArray, StepPlan
from kvsim.protocols import Arrival, CostModel, Executor
from kvsim.record.files import RunFiles
from kvsim.record.logs import Observer
from kvsim.record.recorder import Recorder
from kvsim.record.steps import Columns
from kvsim.request import Request, Sequence, Status
from kvsim.results import RunFolder
from kvsim.run import Run
from kvsim.sched.chunked import ChunkedScheduler
from kvsim.sched.fcfs import FCFSScheduler
from kvsim.sched.static import StaticScheduler
from kvsim.workload.outcomes import Outcomes
from tests.reference.records import Job, Outcome, Setup, StepFacts

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"

Factory = Callable[..., Any]


class Composition(NamedTuple):
    """What a system preset picks."""

    scheduler: Factory
    allocator: Factory


ORCA = partial(FCFSScheduler, prefill_first=False)

SYSTEMS = {
    "fastertransformer": Composition(StaticScheduler, ReserveMax),
    "orca_max": Composition(ORCA, ReserveMax),
    "orca_pow2": Composition(ORCA, ReservePow2),
    "orca_oracle": Composition(ORCA, ReserveOracle),
    "vllm_paper": Composition(partial(FCFSScheduler, prefill_first=False), PagedAllocator),
    "vllm_v0": Composition(partial(FCFSScheduler, prefill_first=True), partial(PagedAllocator, watermark=0.01)),
    "vllm_v1": Composition(ChunkedScheduler, PagedAllocator),
}
RESERVING = ("fastertransformer", "orca_max", "orca_pow2", "orca_oracle")
ORACLES = ("orca_pow2", "orca_oracle")
PREEMPTING = ("vllm_paper", "vllm_v0", "vllm_v1")

every_system = pytest.mark.parametrize("system", SYSTEMS)


def uneven(facts: StepFacts) -> int:
    """Step time, ns, that differs with everything it may depend on."""
    return 1000 + 37 * facts.num_seqs + 11 * facts.total_tokens + facts.context_tokens // 3 + 5 * facts.num_decodes


def even(facts: StepFacts) -> int:
    """Step time, ns, that makes arrivals meet the ends of steps."""
    return 1000


def setup(system: str, **changes: Any) -> Setup:
    """A system over a pool of 64 blocks of 4 tokens, nothing else limited."""
    limits: dict[str, Any] = {"max_num_seqs": None, "max_num_batched_tokens": None}
    pool = {"num_blocks": 64, "block_size": 4, "max_model_len": 64}
    return Setup(system, **(pool | limits | {"step_ns": uneven} | changes))


class JobWorkload:
    """`kvsim.protocols.Workload` over jobs; a job's id is its index."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        ordered = sorted((job.arrival, request_id, job) for request_id, job in enumerate(jobs))
        self._jobs = iter([Arrival(Request(row, at, job.prompt), job.output) for at, row, job in ordered])

    def next_arrival(self) -> Arrival | None:
        return next(self._jobs, None)


class FactsCost:
    """The reference model's step time as a cost model."""

    def __init__(self, step_ns: Callable[[StepFacts], int]) -> None:
        self._step_ns = step_ns

    def decode_run(self, plan: StepPlan, repeats: int) -> IntArray:
        rows = len(plan.seq_ids)
        return np.array(
            [
                self._step_ns(StepFacts(rows, plan.total_tokens, plan.context_tokens + nth * rows, plan.num_decodes))
                for nth in range(repeats)
            ]
        )


def build(
    setup: Setup,
    jobs: Iterable[Job],
    *,
    scheduler: Factory | None = None,
    allocator: Factory | None = None,
    executor: Callable[[CostModel, Outcomes], Executor] | None = None,
    outcomes: Outcomes | None = None,
    check_memory: bool = False,
    **engine: Any,
) -> Run:
    """A run of one system; a factory given replaces the system's own.

    Args:
        check_memory: execute over a pool in which aliasing shows.
        engine: fields of `Run` other than its parts.
    """
    composition = SYSTEMS[setup.system]
    outcomes = outcomes or Outcomes()
    make_allocator = allocator or composition.allocator
    oracle = {"oracle": outcomes} if getattr(make_allocator, "uses_oracle", False) else {}
    length = setup.max_model_len
    if setup.system in RESERVING:  # lowered as `kvsim.config.build` does
        length = ReserveMax(setup.num_blocks, setup.block_size, max_model_len=length).max_sequence_tokens
    pool = make_allocator(setup.num_blocks, setup.block_size, max_model_len=length, **oracle)
    policy = (scheduler or composition.scheduler)(
        pool,
        max_model_len=length,
        max_num_seqs=setup.max_num_seqs,
        max_num_batched_tokens=setup.max_num_batched_tokens,
    )
    slots = setup.num_blocks * setup.block_size
    if check_memory:
        executor = partial(MemoryCheckExecutor, num_slots=slots, block_size=setup.block_size)
    defaults = {"warmup_ns": 0, "duration_ns": None, "drain": True, "fast_forward": True, "record_plans": True}
    return Run(
        labels={"system": setup.system},
        workload=JobWorkload(jobs),
        scheduler=policy,
        allocator=pool,
        executor=(executor or SimExecutor)(FactsCost(setup.step_ns), outcomes),
        outcomes=outcomes,
        pool_tokens=slots,
        **{"record_blocks": False, **defaults, **engine},
    )


class StepRecord(NamedTuple):
    """One step as decided and carried out; ids are request ids, `tables` None where steps were jumped over."""

    step: int
    start_ns: int
    duration_ns: int
    scheduled: list[tuple[int, int]]
    emitted: list[int]
    preempted: list[int]
    finished: list[int]
    waiting: int
    running: int
    idle: int
    tables: dict[int, list[int]] | None

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


class StepObserver:
    """Turns plans into `StepRecord`s, repeats included."""

    def __init__(self) -> None:
        self.steps: list[StepRecord] = []

    def begin(self, plan: StepPlan, now: int, durations: IntArray) -> None:
        jumps = len(durations) > 1
        tables = None if jumps else {seq_id: list(table) for seq_id, table in plan.tables.items()}
        scheduled = list(zip(plan.seq_ids.tolist(), plan.num_tokens.tolist(), strict=True))
        emitted = plan.seq_ids[plan.num_samples > 0].tolist()
        preempted = sorted(plan.preempted)
        queues = plan.num_waiting, plan.num_running, plan.idle_rows
        for nth, duration in enumerate(durations.tolist()):
            lost = preempted if nth == 0 else []
            row: tuple[Any, ...] = (plan.step + nth, now, duration, scheduled, emitted, lost, [], *queues, tables)
            self.steps.append(StepRecord._make(row))
            now += duration

    def close(self, now: int) -> None:
        pass

    def end(self, ended: list[Sequence], now: int) -> None:
        self.steps[-1].finished.extend(sorted(seq.request.request_id for seq in ended))


class Tables(RunFiles):
    """Keeps what would become the files of a run."""

    def __init__(self) -> None:
        self.chunks: list[Columns] = []
        self.requests: dict[int, Outcome] = {}

    def write_steps(self, columns: Columns) -> None:
        self.chunks.append(columns)

    def write_requests(self, columns: RequestColumns, reasons: list[str | None], step_ends: IntArray) -> None:
        states = {-1: "lost"} | dict(enumerate(Status))
        outcomes = map(
            Outcome,
            [states[state] for state in columns.state.tolist()],
            [reason or "" for reason in reasons],
            _instants(columns.first_token_ns),
            _instants(columns.finished_ns),
            columns.num_preemptions.tolist(),
            columns.recomputed_tokens.tolist(),
        )
        self.requests = dict(zip(columns.request_id.tolist(), outcomes, strict=True))

    def steps(self) -> dict[str, list[int]]:
        names = self.chunks[0] if self.chunks else []
        return {name: np.concatenate([chunk[name] for chunk in self.chunks]).tolist() for name in names}


def _instants(column: IntArray) -> list[int | None]:
    return [None if instant < 0 else instant for instant in column.tolist()]


@dataclass
class Log:
    """What a run did: decisions, one dict of memory classes a step, the other columns of its steps, how each ended."""

    steps: list[StepRecord]
    summary: dict[str, Metric]
    requests: dict[int, Outcome]
    columns: dict[str, list[int]]
    memory: list[dict[str, int]] = field(init=False)

    def __post_init__(self) -> None:
        classes = [self.columns.get(name, []) for name in MEMORY_CLASSES]
        self.memory = [dict(zip(MEMORY_CLASSES, row, strict=True)) for row in zip(*classes, strict=True)]

    def finished(self, state: Status = Status.COMPLETED) -> list[int]:
        return [request_id for request_id, outcome in self.requests.items() if outcome.state == state]


def execute(run: Run, *observers: Observer, engine: type[Engine] = Engine) -> Log:
    """Carry a run out in memory."""
    watch, tables = StepObserver(), Tables()
    totals = StepTotals(run.warmup_ns, None if run.drain else run.duration_ns, run.pool_tokens)
    summary = engine(
        run.workload,
        run.scheduler,
        run.allocator,
        run.executor,
        run.outcomes,
        Recorder(totals, tables, [watch, *observers]),
        duration_ns=run.duration_ns,
        drain=run.drain,
        fast_forward=run.fast_forward,
    ).run()
    return Log(watch.steps, summary, tables.requests, tables.steps())


def simulate(setup: Setup, jobs: Iterable[Job], **parts: Any) -> Log:
    """`build` and `execute`."""
    return execute(build(setup, jobs, **parts))


def write(run: Run, path: Path) -> dict[str, bytes]:
    """Carry a run out into a folder; the files that must not depend on how it was carried out."""
    with RunFolder(path) as folder:
        run.execute(folder)
    return contents(path)


def contents(path: Path) -> dict[str, bytes]:
    """Files of a run folder, but for those that name the machine and the time."""
    return {file.name: file.read_bytes() for file in sorted(path.iterdir()) if file.name not in RUN_SPECIFIC}


RUN_SPECIFIC = ("status.json", "env.json")


def tight(system: str, seed: int, count: int = 40) -> tuple[Setup, list[Job]]:
    """Too little memory: requests of some blocks each and a pool of a few dozen, most arriving at once."""
    rng = random.Random(seed)
    size, longest = rng.choice([1, 4, 16]), 32
    budget = rng.choice([longest * size, 3 * size + 1]) if system == "vllm_v1" else None
    limits = {"max_num_seqs": rng.choice([None, None, 9]), "max_num_batched_tokens": budget}
    pool = {"num_blocks": rng.randint(66, 120), "block_size": size, "max_model_len": longest * size}
    at, jobs = 0, []
    for _ in range(count):
        at += rng.choice([0, 0, 1000, 30_000])
        jobs.append(Job(at, rng.randint(1, 12 * size), rng.randint(1, 16 * size)))
    return setup(system, **pool, **limits), jobs


def sharegpt_like(system: str, seed: int, count: int = 40, gap_ns: int = 30_000_000) -> tuple[Setup, list[Job]]:
    """Lengths of conversations (log-normal, long answers) on a pool of 15.7K tokens, arrivals at random."""
    rng = random.Random(seed)
    pool = {"num_blocks": 982, "block_size": 16, "max_model_len": 2048}
    budget = 512 if system == "vllm_v1" else None
    at, jobs = 0, []
    for _ in range(count):
        at += round(rng.expovariate(1 / gap_ns))
        prompt, output = (min(1000, 1 + round(rng.lognormvariate(mu, 1.0))) for mu in (4.4, 5.2))
        jobs.append(Job(at, prompt, output))
    return setup(system, **pool, max_num_seqs=256, max_num_batched_tokens=budget, step_ns=a_gpu), jobs


def a_gpu(facts: StepFacts) -> int:
    """Step time, ns, of about a 13B model."""
    return 15_000_000 + 60_000 * (facts.total_tokens - facts.num_decodes) + 500 * facts.context_tokens


def pressed(system: str, **parts: Any) -> tuple[Log, list[Job]]:
    """A run on a pool that is too small, and its jobs."""
    limits, jobs = tight(system, seed=5, count=80)
    return simulate(limits, jobs, **parts), jobs


def breach(name: str) -> Any:
    """The run must stop with this invariant's name."""
    return pytest.raises(InvariantError, match=f"^{name}: ")
