"""What policies must not see: how long each answer becomes (INV-oracle)."""

from __future__ import annotations

import numpy as np

from kvsim.plan import NO_ROWS, IntArray, StepPlan


class Outcomes:
    """Forced output lengths: a sequence stops when it has drawn them all, in simulation and on a device alike."""

    def __init__(self) -> None:
        self._total: IntArray = np.zeros(1024, dtype=np.int64)
        self._left: IntArray = np.zeros(1024, dtype=np.int64)

    def add(self, request_id: int, num_output_tokens: int) -> None:
        """Fix the length of a request that has arrived."""
        while request_id >= len(self._total):
            self._total = np.concatenate((self._total, np.zeros_like(self._total)))
            self._left = np.concatenate((self._left, np.zeros_like(self._left)))
        self._total[request_id] = num_output_tokens
        self._left[request_id] = num_output_tokens

    def num_output_tokens(self, request_id: int) -> int:
        """True output length, tokens."""
        return int(self._total[request_id])

    def steps_to_finish(self, plan: StepPlan) -> int:
        """Repeats of a decode-only plan up to and including the one that ends its first sequence."""
        left = self._left[plan.seq_ids]
        return int(left[left.argmin()])

    def draw(self, plan: StepPlan, repeats: int) -> IntArray:
        """Let every row of `plan` draw its samples `repeats` times; the rows (ascending) that are done with it."""
        ids = plan.seq_ids
        left = self._left[ids] - (repeats if plan.num_decodes == len(ids) else plan.num_samples)
        self._left[ids] = left
        if left[left.argmin()] > 0:
            return NO_ROWS
        stopped: IntArray = (left == 0).nonzero()[0]
        return stopped
