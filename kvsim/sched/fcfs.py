"""Iteration-level first come, first served: Orca (OSDI'22 section 3) and vLLM before V1 (SOSP'23 section 4.5)."""

from __future__ import annotations

from kvsim.plan import StepPlan
from kvsim.protocols import Admission, KVAllocator
from kvsim.request import Sequence
from kvsim.sched.base import SchedulerBase


class FCFSScheduler(SchedulerBase):
    """Everybody decodes each step; the queue's head joins when its prompt fits; the latest is preempted on shortage.

    Over a pool that reserves (Orca) nothing is ever short. Prompts are never split.

    Args:
        allocator, max_model_len, max_num_seqs, max_num_batched_tokens: as in `SchedulerBase`.
        prefill_first: a step that admits prompts computes them alone (vLLM v0); else prompts join the
            decodes in one batch (the SOSP'23 artifact).
    """

    def __init__(
        self,
        allocator: KVAllocator,
        *,
        max_model_len: int,
        max_num_seqs: int | None,
        max_num_batched_tokens: int | None,
        prefill_first: bool,
    ) -> None:
        super().__init__(
            allocator,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        self._prefill_first = prefill_first

    def schedule(self, now: int) -> StepPlan:
        """Make room for the decodes, then admit; or the other way round if prompts go first."""
        if self._prefill_first:
            admitted = self._admit(batched=0)
            if admitted:
                return self._plan_prompts(0, admitted)
            steps = self._make_room()
        else:
            steps = self._make_room()
            decodes = len(self.running)
            if self.waiting and not self._preempted:
                admitted = self._admit(batched=decodes)
                if admitted:
                    return self._plan_prompts(decodes, admitted)
        if not self.running:
            return self._empty_plan()
        return self._plan_decodes(steps)

    def _make_room(self) -> int:
        """One more token for every running sequence; how many such rounds fit (0: the room was hard won)."""
        batch, allocator = self.running, self.allocator
        steps = allocator.max_decode_steps(batch.num_computed)
        if steps:
            if batch.seqs:
                self._grow_running()
            return steps
        row = 0
        while row < len(batch):
            held = batch.num_computed[row:]
            passing = allocator.num_appendable(held)
            if passing:
                allocator.grow(batch.seqs[row : row + passing], held[:passing], 1)
                row += passing
            elif len(batch) == 1 and self._append_lone():
                row += 1
            else:
                self._preempt_last()
        return 0

    def _append_lone(self) -> bool:
        """A lone sequence waits for nobody's memory: only its real need counts."""
        self.running.sync()
        seq = self.running.seqs[0]
        return self.allocator.allocate(seq, seq.num_tokens)

    def _admit(self, batched: int) -> list[Sequence]:
        """Prompts from the head of the queue until one does not fit; `batched` tokens are in the step already."""
        admitted: list[Sequence] = []
        waiting = self.waiting
        while waiting:
            seq = waiting[0]
            if self.allocator.can_admit(seq) is Admission.LATER:
                break
            if batched + seq.num_tokens > self.max_num_batched_tokens:
                break
            if len(self.running) + len(admitted) >= self.max_num_seqs:
                break
            self._allocate(seq, seq.num_tokens)
            batched += seq.num_tokens
            admitted.append(waiting.popleft())
        if admitted:
            self.running.append(admitted)
        return admitted
