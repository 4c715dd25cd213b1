"""What every scheduler shares: the queue, the running batch, and turning a decision into a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

import numpy as np

from kvsim.checks import check_integer
from kvsim.errors import InvariantError
from kvsim.plan import NO_ROWS, UNBOUNDED, IntArray, StepPlan, StepResult, ones
from kvsim.protocols import Admission, KVAllocator
from kvsim.request import Request, Sequence
from kvsim.sched.batch import RunningBatch

NO_GROWTH: IntArray = np.zeros(1, dtype=np.int64)


def cap(name: str, value: int | None) -> int:
    """A limit of the scheduler, sequences or tokens; None means there is none.

    Raises:
        ConfigError: no whole number of at least 1.
    """
    return UNBOUNDED if value is None else check_integer(f"scheduler.{name}", value, remedy="null is no limit")


class SchedulerBase(ABC):
    """First come, first served: a queue whose head alone is looked at, and a batch in admission order.

    Args:
        allocator: where the sequences' KV lives.
        max_model_len: tokens a sequence may reach.
        max_num_seqs: sequences of a step; None for no limit.
        max_num_batched_tokens: new tokens of a step; None for no limit.
    """

    def __init__(
        self,
        allocator: KVAllocator,
        *,
        max_model_len: int,
        max_num_seqs: int | None,
        max_num_batched_tokens: int | None,
    ) -> None:
        self.allocator = allocator
        self.max_model_len = max_model_len
        self.max_num_seqs = cap("max_num_seqs", max_num_seqs)
        self.max_num_batched_tokens = cap("max_num_batched_tokens", max_num_batched_tokens)
        self.waiting: deque[Sequence] = deque()
        self.running = RunningBatch()
        self._step = 0
        self._released: list[int] = []
        self._preempted: list[int] = []
        self._first_row = 0

    @property
    def max_prompt_tokens(self) -> int:
        """Longest prompt that can ever be scheduled: prompts are not split."""
        return self.max_num_batched_tokens

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self.waiting)

    @property
    def num_unfinished(self) -> int:
        """Requests queued or running."""
        return len(self.waiting) + len(self.running)

    def add_request(self, request: Request, now: int) -> None:
        """Queue a request that has arrived."""
        self.waiting.append(Sequence(request.request_id, request))

    @abstractmethod
    def schedule(self, now: int) -> StepPlan:
        """Decide the next step."""

    def advance(self, plan: StepPlan, repeats: int) -> IntArray:
        """Grow the decoding sequences over repeats 2..`repeats`; [repeats] slots newly held, cumulative."""
        if repeats == 1:
            return NO_GROWTH
        growth = np.zeros(repeats, dtype=np.int64)
        growth[1:] = self.allocator.grow(self.running.seqs, plan.context_lens, repeats - 1)
        return growth

    def update(self, plan: StepPlan, result: StepResult, now: int) -> list[Sequence]:
        """Count what was computed and let go of those that ended."""
        repeats = len(result.durations)
        self._step += repeats
        computed = plan.context_lens if repeats == 1 else plan.context_lens + (repeats - 1)
        self.running.set_computed(self._first_row, computed)
        if not len(result.stopped):
            return []
        ended = self.running.remove([self._first_row + row for row in result.stopped.tolist()])
        self._end(ended)
        return ended

    def abort_all(self) -> list[Sequence]:
        """Let go of everybody, queued or running; they stay unfinished."""
        running = self.running.remove(list(range(len(self.running))))
        self._release(running)
        gone = running + list(self.waiting)
        self.waiting.clear()
        return gone

    def _end(self, seqs: list[Sequence]) -> None:
        """These drew their last token."""
        self._release(seqs)

    def _release(self, seqs: list[Sequence]) -> None:
        for seq in seqs:
            self.allocator.free(seq)
            self._released.append(seq.seq_id)

    def _preempt_last(self) -> Sequence:
        """Recompute preemption of the latest: memory given back, everything to be computed again, head of the queue."""
        seq = self.running.pop_last()
        self._release([seq])
        seq.num_preemptions += 1
        seq.num_recomputed_tokens += seq.num_computed_tokens
        seq.num_computed_tokens = 0
        self.waiting.appendleft(seq)
        self._preempted.append(seq.seq_id)
        return seq

    def _allocate(self, seq: Sequence, num_tokens: int) -> None:
        """Room that the allocator said there is."""
        if not self.allocator.allocate(seq, num_tokens):
            raise InvariantError("INV-blocks", f"sequence {seq.seq_id} was admitted but {num_tokens} tokens do not fit")

    def _grow_running(self) -> None:
        """One more token for every running sequence, room for which was seen."""
        self.allocator.grow(self.running.seqs, self.running.num_computed, 1)

    def _plan(
        self,
        first_row: int,
        num_tokens: IntArray,
        num_samples: IntArray,
        num_decodes: int,
        repeats: int,
    ) -> StepPlan:
        """A plan of the running rows from `first_row` on, one for each of `num_tokens`."""
        batch = self.running
        rows, running = len(num_tokens), len(batch.seqs)
        whole = rows == running
        self._first_row = first_row
        planned = slice(first_row, first_row + rows)
        positions = batch.num_computed if whole else batch.num_computed[planned]
        context_lens = positions + num_tokens
        waiting = len(self.waiting)
        starved = waiting > 0 and (
            bool(self._preempted) or self.allocator.can_admit(self.waiting[0]) is Admission.LATER
        )
        if self._preempted or (waiting and not starved):
            # the next decision may differ: nobody is admitted now, or the head waits for something else than memory
            repeats = 1
        plan = StepPlan(
            step=self._step,
            seq_ids=batch.ids if whole else batch.ids[planned],
            positions=positions,
            num_tokens=num_tokens,
            slot_starts=positions,
            context_lens=context_lens,
            num_samples=num_samples,
            tables=self.allocator.tables,
            total_tokens=rows if num_decodes == rows else int(num_tokens.sum()),
            context_tokens=int(context_lens.dot(ones(rows))),  # half the time of sum()
            num_decodes=num_decodes,
            released=tuple(self._released),
            preempted=tuple(self._preempted),
            num_waiting=waiting,
            num_running=running,
            starved=starved,
            max_repeats=repeats,
        )
        self._released.clear()
        self._preempted.clear()
        return plan

    def _empty_plan(self) -> StepPlan:
        if self.running:
            raise InvariantError("INV-progress", f"{len(self.running)} sequences run but none is scheduled")
        return self._plan(0, NO_ROWS, NO_ROWS, 0, 1)

    def _plan_decodes(self, steps: int) -> StepPlan:
        """A plan in which every running row decodes; room was seen for `steps` such steps."""
        rows = len(self.running.seqs)
        return self._plan(0, ones(rows), ones(rows), rows, max(1, steps))

    def _plan_prompts(self, num_decodes: int, admitted: list[Sequence]) -> StepPlan:
        """A plan of the whole prompts of `admitted`, the last running rows, after `num_decodes` decoding rows."""
        prompts = np.array([seq.num_tokens for seq in admitted])
        num_tokens = np.concatenate((ones(num_decodes), prompts)) if num_decodes else prompts
        first_row = len(self.running.seqs) - len(num_tokens)
        return self._plan(first_row, num_tokens, ones(len(num_tokens)), num_decodes, 1)
