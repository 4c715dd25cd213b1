"""Request-level static batching: FasterTransformer behind a batching front end (SOSP'23 section 6.1)."""

from __future__ import annotations

from kvsim.plan import UNBOUNDED, StepPlan, StepResult
from kvsim.protocols import Admission
from kvsim.request import Sequence
from kvsim.sched.base import SchedulerBase


class StaticScheduler(SchedulerBase):
    """Takes as many of the earliest requests as memory allows, runs them to the last one's end, then takes the next.

    Prompts are padded to the longest; members that finish early idle in the batch, keep their memory and are
    delivered with it.
    """

    _finished: tuple[Sequence, ...] = ()

    @property
    def num_unfinished(self) -> int:
        """Requests queued or in the batch."""
        return super().num_unfinished + len(self._finished)

    def schedule(self, now: int) -> StepPlan:
        """Decode the members that go on; a new batch only when there is none."""
        if self.running:
            self._grow_running()
            plan = self._plan_decodes(UNBOUNDED)
            return plan._replace(
                idle_rows=len(self._finished),
                idle_context_tokens=sum(seq.num_computed_tokens for seq in self._finished),
                max_repeats=UNBOUNDED,
            )
        batch = self._next_batch()
        if not batch:
            return self._empty_plan()
        self.running.append(batch)
        lengths = [seq.num_tokens for seq in batch]
        plan = self._plan_prompts(0, batch)
        return plan._replace(padding_tokens=max(lengths) * len(lengths) - sum(lengths))

    def update(self, plan: StepPlan, result: StepResult, now: int) -> list[Sequence]:
        """Set finished members aside; the batch ends, and is delivered, with its last one."""
        self._finished += tuple(super().update(plan, result, now))
        if self.running:
            return []
        ended = sorted(self._finished, key=lambda seq: seq.seq_id)
        self._finished = ()
        self._release(ended)
        return ended

    def abort_all(self) -> list[Sequence]:
        """Let go of everybody; members that finished early were not delivered either."""
        finished, self._finished = list(self._finished), ()
        self._release(finished)
        return finished + super().abort_all()

    def _end(self, seqs: list[Sequence]) -> None:
        """Finished members keep their memory until the batch ends."""

    def _next_batch(self) -> list[Sequence]:
        batch: list[Sequence] = []
        longest = 0
        while self.waiting and len(batch) < self.max_num_seqs:
            seq = self.waiting[0]
            longest = max(longest, seq.num_tokens)
            padded = longest * (len(batch) + 1)
            if padded > self.max_num_batched_tokens or self.allocator.can_admit(seq) is Admission.LATER:
                break
            self._allocate(seq, seq.num_tokens)
            batch.append(self.waiting.popleft())
        return batch
