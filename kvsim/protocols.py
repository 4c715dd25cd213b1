"""The seams of kvsim: what an allocator, a scheduler, an executor, a cost model and a workload must do."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Sized
from enum import Enum
from typing import NamedTuple, Protocol

from kvsim.plan import BlockTable, IntArray, PoolUsage, StepPlan, StepResult
from kvsim.request import Request, Sequence


class Admission(Enum):
    """Answer of `KVAllocator.can_admit`."""

    NOW = "now"
    LATER = "later"


class OutputLengthOracle(Protocol):
    """True output lengths. Handed only to rules that declare ``uses_oracle = True``."""

    def num_output_tokens(self, request_id: int) -> int:
        """Tokens the request will generate."""
        ...


class KVAllocator(Protocol):
    """Where a sequence's keys and values live. Never decides who runs."""

    block_size: int
    """Token slots a block, a power of two up to 256."""
    whole_blocks: bool
    """Whether `max_model_len` must be a multiple of the block size."""

    @property
    def tables(self) -> Mapping[int, BlockTable]:
        """Block table of every sequence that holds memory; live, changes with the pool."""
        ...

    @property
    def num_free_blocks(self) -> int:
        """Blocks nobody holds."""
        ...

    @property
    def max_sequence_tokens(self) -> int:
        """Longest sequence, in tokens, that the empty pool can hold under this allocator's rules."""
        ...

    def can_admit(self, seq: Sequence) -> Admission:
        """Whether all known tokens of `seq` fit now. Does not mutate."""
        ...

    def num_appendable(self, num_tokens: IntArray) -> int:
        """Leading rows, holding `num_tokens` each, that pass the system's own (conservative) test for one more token.

        Each row that passes is taken to have grown before the next is tested. Does not mutate.
        """
        ...

    def allocate(self, seq: Sequence, num_tokens: int) -> bool:
        """Make `seq` hold `num_tokens` tokens in all. False: does not fit, nothing changed."""
        ...

    def max_decode_steps(self, num_tokens: IntArray) -> int:
        """How many more single-token steps surely fit for sequences that hold `num_tokens` each. Does not mutate."""
        ...

    def grow(self, seqs: Sized[Sequence], num_tokens: IntArray, steps: int) -> IntArray:
        """Grow each of `seqs`, which hold `num_tokens` each, by one token, `steps` times over.

        Equals `steps` rounds of ``allocate(seq, held + 1)`` in the order of `seqs`, which is that of admission.

        Returns:
            [steps] slots newly held after each round, cumulative.

        Raises:
            InvariantError: the pool ran out; callers ask `max_decode_steps` or `num_appendable` first.
        """
        ...

    def free(self, seq: Sequence) -> None:
        """Give back all that `seq` holds.

        Raises:
            InvariantError: it holds nothing (double free).
        """
        ...

    def usage(self) -> PoolUsage:
        """The pool now."""
        ...

    def check_integrity(self) -> None:
        """Raise InvariantError naming blocks and owners if the books do not balance. Does not mutate."""
        ...


class Scheduler(Protocol):
    """Who runs this step, with how many tokens."""

    max_model_len: int
    """Tokens a sequence may reach."""

    @property
    def max_prompt_tokens(self) -> int:
        """Longest prompt that can ever be scheduled (the token budget, where prompts are not chunked)."""
        ...

    def add_request(self, request: Request, now: int) -> None:
        """Queue a request that has arrived by `now`, ns."""
        ...

    def schedule(self, now: int) -> StepPlan:
        """Decide the step that starts at `now`, ns. A plan without rows means that nothing can run."""
        ...

    def advance(self, plan: StepPlan, repeats: int) -> IntArray:
        """Carry the books over repeats 2..`repeats` of a plan as stepping would; called once a plan, before `update`.

        Returns:
            [repeats] slots newly held after each repeat, cumulative; the first is 0.
        """
        ...

    def update(self, plan: StepPlan, result: StepResult, now: int) -> list[Sequence]:
        """Take in the results at `now`, the plan's end; returns the sequences that ended, memory given back."""
        ...

    def abort_all(self) -> list[Sequence]:
        """Let go of every request, queued or running, memory given back; returns their sequences."""
        ...

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        ...

    @property
    def num_unfinished(self) -> int:
        """Requests queued or running."""
        ...


class Executor(Protocol):
    """Carries plans out."""

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        """Carry out `plan`, decided at `now`, up to `max_repeats` times: one step, and more that start before `until`.

        Returns:
            The duration of each step carried out, ns, and the rows that drew their last token.

        Raises:
            InvariantError: the plan cannot be carried out.
        """
        ...


class CostModel(Protocol):
    """Predicts how long a step lasts."""

    def decode_run(self, plan: StepPlan, repeats: int) -> IntArray:
        """[repeats] ns of the plan's step and of its repeats, each decode row one token longer than in the step before.

        A plan with prefill rows is asked for one repeat only.
        """
        ...


class Arrival(NamedTuple):
    """A request with what only the engine may know of it: its true output length, tokens."""

    request: Request
    num_output_tokens: int


class Workload(Protocol):
    """Requests in order of (arrival_ns, request_id)."""

    def next_arrival(self) -> Arrival | None:
        """The next request, or None after the last."""
        ...
