"""What the reference model reads (`Job`, `Setup`) and writes (`Log`). Times are integer ns, memory is in tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Job:
    """One request; its id is its index in the list of jobs."""

    arrival: int
    prompt: int
    output: int


class StepFacts(NamedTuple):
    """What a step's duration may depend on. `context_tokens` sums the tokens each row sees after its write."""

    num_seqs: int
    total_tokens: int
    context_tokens: int
    num_decodes: int


@dataclass(frozen=True)
class Setup:
    """One system with its limits; None = no limit."""

    system: str
    num_blocks: int
    block_size: int
    max_model_len: int
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    step_ns: Callable[[StepFacts], int]


@dataclass
class Step:
    """One engine step. All but `finished` is the state after schedule(), with the tokens this step writes present.

    `scheduled` is in plan order, `preempted` in order of preemption (latest arrival first), `finished` ascending.
    `tables` lists the blocks of everyone who holds memory; for a buddy pool, all blocks of the chunk.
    """

    step: int
    start_ns: int
    duration_ns: int
    facts: StepFacts
    scheduled: list[tuple[int, int]]
    preempted: list[int]
    finished: list[int]
    waiting: int
    running: int
    memory: dict[str, int]
    tables: dict[int, list[int]]


@dataclass
class Outcome:
    """How one request ended. `recomputed_tokens` counts every token computed although it had been computed before."""

    state: str = "pending"
    reason: str = ""
    first_token_ns: int | None = None
    finished_ns: int | None = None
    num_preemptions: int = 0
    recomputed_tokens: int = 0


@dataclass
class Log:
    """All steps in order, and one outcome a job."""

    steps: list[Step] = field(default_factory=list)
    requests: list[Outcome] = field(default_factory=list)


@dataclass(eq=False)
class Seq:
    """A request inside the system.

    `table` lists its physical blocks, `slots` the physical slot of every token whose KV is present, in order.
    `reserved` is the size it asked for before rounding (reserving systems), `dead` a finished member of a static batch.
    """

    request: int
    prompt: int
    output: int
    emitted: int = 0
    table: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    most_computed: int = 0
    reserved: int = 0
    dead: bool = False

    @property
    def known(self) -> int:
        """Prompt and emitted tokens."""
        return self.prompt + self.emitted

    @property
    def computed(self) -> int:
        """Tokens whose KV is in the cache."""
        return len(self.slots)
