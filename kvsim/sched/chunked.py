"""vLLM V1: a token budget shared by decodes and chunks of prompts (checked step by step against vLLM 0.20.2)."""

from __future__ import annotations

import numpy as np

from kvsim.plan import UNBOUNDED, StepPlan
from kvsim.protocols import Admission
from kvsim.request import Sequence
from kvsim.sched.base import SchedulerBase


class ChunkedScheduler(SchedulerBase):
    """Running sequences first, in admission order, while the budget lasts; then the queue's head, in chunks.

    Admission asks for room for all known tokens but takes only the chunk's. The last running sequence is
    preempted on shortage, and nobody is admitted in a step that preempted.
    """

    _partial = False  # whether a running row's prompt is not computed to its end

    @property
    def max_prompt_tokens(self) -> int:
        """No limit: prompts are split."""
        return UNBOUNDED

    def schedule(self, now: int) -> StepPlan:
        """Spend the budget on running sequences, then on waiting ones."""
        rows = len(self.running)
        steps = 0
        if not self._partial and rows <= self.max_num_batched_tokens:
            steps = self.allocator.max_decode_steps(self.running.num_computed)
        if steps:
            counts = [1] * rows
            if rows:
                self._grow_running()
        else:
            self.running.sync()
            counts = self._schedule_running()
        decodes = len(counts) if steps else self._num_decodes(counts)
        if not self._preempted:
            self._admit(counts)
        if not counts:
            return self._empty_plan()
        if len(counts) == rows == decodes and not self._partial:
            return self._plan_decodes(steps)
        return self._plan_chunks(counts, decodes)

    def _schedule_running(self) -> list[int]:
        """Tokens for the running rows, from the first, as far as budget and memory go."""
        counts: list[int] = []
        budget = self.max_num_batched_tokens
        while len(counts) < len(self.running) and budget:
            seq = self.running.seqs[len(counts)]
            count = min(seq.num_tokens - seq.num_computed_tokens, budget)
            while not self.allocator.allocate(seq, seq.num_computed_tokens + count):
                if self._preempt_last() is seq:
                    return counts
            counts.append(count)
            budget -= count
        return counts

    def _num_decodes(self, counts: list[int]) -> int:
        rows = zip(self.running.seqs, counts, strict=False)
        return sum(seq.num_computed_tokens >= seq.request.num_prompt_tokens and count == 1 for seq, count in rows)

    def _admit(self, counts: list[int]) -> None:
        """Admit from the head of the queue into what is left of the budget; extends `counts`."""
        budget = self.max_num_batched_tokens - sum(counts)
        admitted: list[Sequence] = []
        while self.waiting and budget and len(self.running) + len(admitted) < self.max_num_seqs:
            seq = self.waiting[0]
            if self.allocator.can_admit(seq) is Admission.LATER:
                break
            count = min(seq.num_tokens, budget)
            self._allocate(seq, count)
            admitted.append(self.waiting.popleft())
            counts.append(count)
            budget -= count
        if admitted:
            self.running.append(admitted)

    def _plan_chunks(self, counts: list[int], decodes: int) -> StepPlan:
        """A plan in which some rows are prompts or parts of them."""
        num_tokens = np.array(counts)
        computed = self.running.num_computed
        known = np.array([seq.num_tokens for seq in self.running.seqs])
        # decoding rows know one token more than they computed; their sequence's own count lags behind
        left = np.maximum(known - computed, 1)
        left[: len(counts)] -= num_tokens
        self._partial = bool((left[: len(counts)] > 0).any() or (left[len(counts) :] > 1).any())
        num_samples = (left[: len(counts)] == 0).astype(np.int64)
        return self._plan(0, num_tokens, num_samples, decodes, 1)
