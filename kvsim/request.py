"""What a client asked for (`Request`) and what a policy knows of it while it runs (`Sequence`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    REJECTED = "rejected"
    FAILED = "failed"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sends. Holds nothing that a server could not know on arrival (INV-oracle).

    Attributes:
        request_id: row number of the workload, from 0; ties in arrival time are broken by it.
        arrival_ns: arrival on the run's clock, integer nanoseconds from the run's start.
        num_prompt_tokens: prompt length p, at least 1 for a request that can run.
    """

    request_id: int
    arrival_ns: int
    num_prompt_tokens: int


@dataclass(slots=True, eq=False)
class Sequence:
    """One stream of tokens whose keys and values are cached; the unit that is scheduled and preempted.

    While a sequence is in a `RunningBatch` the batch's columns are ahead of the two counters; they are
    written back when it leaves.

    Attributes:
        seq_id: unique within the run; equals the request id of a request with one sequence.
        num_tokens: known tokens, prompt + generated.
        num_computed_tokens: tokens whose KV is in the cache; an allocator takes it for what the sequence holds.
        num_preemptions: times it lost its cache to others.
        num_recomputed_tokens: tokens whose KV was lost and had to be computed again.
    """

    seq_id: int
    request: Request
    num_tokens: int = field(init=False)
    num_computed_tokens: int = 0
    num_preemptions: int = 0
    num_recomputed_tokens: int = 0

    def __post_init__(self) -> None:
        self.num_tokens = self.request.num_prompt_tokens
