"""`RunningBatch`: the running sequences in admission order, as columns."""

from __future__ import annotations

import numpy as np

from kvsim.plan import NO_ROWS, IntArray
from kvsim.request import Sequence


class RunningBatch:
    """Rows are sequences; their counters live in columns so that a step costs the same for any batch.

    Attributes:
        seqs: [rows] the sequences; their own counters lag behind the columns until `sync`.
        ids: [rows] sequence ids.
        num_computed: [rows] tokens in the cache.

    Columns are replaced, never changed in place, so a plan may keep them.
    """

    def __init__(self) -> None:
        self.seqs: list[Sequence] = []
        self.ids: IntArray = NO_ROWS
        self.num_computed: IntArray = NO_ROWS

    def __len__(self) -> int:
        return len(self.seqs)

    def append(self, seqs: list[Sequence]) -> None:
        """Add rows at the end; nothing of them is computed yet."""
        self.seqs.extend(seqs)
        self.ids = np.concatenate((self.ids, [seq.seq_id for seq in seqs]))
        self.num_computed = np.concatenate((self.num_computed, [seq.num_computed_tokens for seq in seqs]))

    def set_computed(self, first_row: int, computed: IntArray) -> None:
        """As many rows as `computed` has, from `first_row` on, now have so many tokens in the cache."""
        if len(computed) < len(self.num_computed):
            whole = self.num_computed.copy()
            whole[first_row : first_row + len(computed)] = computed
            computed = whole
        self.num_computed = computed

    def pop_last(self) -> Sequence:
        """Take the last row out, its counters written back."""
        return self.remove([len(self.seqs) - 1])[0]

    def remove(self, rows: list[int]) -> list[Sequence]:
        """Take `rows` (ascending) out, their counters written back."""
        self._write_back(rows)
        gone = [self.seqs[row] for row in rows]
        for row in reversed(rows):
            del self.seqs[row]
            self.ids = np.concatenate((self.ids[:row], self.ids[row + 1 :]))
            self.num_computed = np.concatenate((self.num_computed[:row], self.num_computed[row + 1 :]))
        return gone

    def sync(self) -> None:
        """Write the columns back into the sequences."""
        self._write_back(range(len(self.seqs)))

    def _write_back(self, rows: list[int] | range) -> None:
        for row in rows:
            seq = self.seqs[row]
            seq.num_computed_tokens = computed = int(self.num_computed[row])
            # one known token is not computed yet once the prompt is: the one sampled last
            if computed >= seq.num_tokens:
                seq.num_tokens = computed + 1
