"""What the host knows of every sequence: its tokens and its block table, a row each, in arrays that grow in place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpu_backend.prompts import Prompts, TokenIds
from kvsim.plan import BlockTable, IntArray, StepPlan

FIRST_ROWS = 64
NO_TOKENS: TokenIds = np.zeros(0, dtype=np.int32)


class Sequences:
    """Rows of the sequences that hold memory or were preempted.

    Tables only grow until `StepPlan.released` names their sequence. A preempted sequence keeps its tokens.

    Args:
        prompts: tokens that no step drew.
        max_model_len: tokens of the longest sequence.
        block_size: tokens a block.
        keep_tokens: keep what ended sequences drew.

    Attributes:
        tokens: [rows, max_model_len + 2] int32 ids; nobody reads the last one.
        blocks: [rows, blocks of the longest sequence] int32.
        stored: [rows] tokens in the cache.
        num_blocks: [rows] leading entries of `blocks` that are valid.
    """

    def __init__(self, prompts: Prompts, max_model_len: int, block_size: int, *, keep_tokens: bool) -> None:
        self._prompts = prompts
        self._keep = keep_tokens
        self._drawn: dict[int, TokenIds] = {}
        self.block_size = block_size
        self.tokens: TokenIds = np.zeros((FIRST_ROWS, max_model_len + 2), dtype=np.int32)
        self.blocks: NDArray[np.int32] = np.zeros((FIRST_ROWS, -(-max_model_len // block_size)), dtype=np.int32)
        self.stored = np.zeros(FIRST_ROWS, dtype=np.int64)
        self.num_blocks = np.zeros(FIRST_ROWS, dtype=np.int64)
        self._known = np.zeros(FIRST_ROWS, dtype=np.int64)  # leading entries of `tokens` that are valid
        self._first_drawn = np.zeros(FIRST_ROWS, dtype=np.int64)
        self._row_of: IntArray = np.full(1024, -1, dtype=np.int64)
        self._id_of: dict[int, int] = {}
        self._free = list(range(FIRST_ROWS))

    def drawn(self, seq_id: int) -> list[int]:
        """Tokens drawn for a sequence, the ended ones' where they are kept."""
        row = int(self.find(np.array([seq_id]))[0])
        ids = self._drawn.get(seq_id, NO_TOKENS) if row < 0 else self._drawn_in(row)
        return list(map(int, ids))

    def release(self, plan: StepPlan) -> None:
        """Forget the tables of those who gave their memory back; all of those who ended."""
        for seq_id in plan.released:
            row = int(self._row_of[seq_id]) if seq_id < len(self._row_of) else -1
            if row < 0:
                continue
            self.num_blocks[row] = self.stored[row] = 0
            if seq_id not in plan.preempted:
                self._drop(seq_id, row)

    def find(self, seq_ids: IntArray) -> IntArray:
        """[sequences] their rows, -1 for those not known."""
        while True:
            try:
                return self._row_of[seq_ids]
            except IndexError:
                self._row_of = np.concatenate((self._row_of, np.full_like(self._row_of, -1)))

    def rows(self, seq_ids: IntArray, tables: Mapping[int, BlockTable]) -> IntArray:
        """[sequences] their rows, new ones where they had none."""
        rows = self.find(seq_ids)
        if rows.min(initial=0) < 0:
            for seq_id in seq_ids[rows < 0].tolist():
                if self._row_of[seq_id] < 0:
                    self._add(seq_id, tables)
            rows = self._row_of[seq_ids]
        return rows

    def lacking(self, rows: IntArray, lengths: IntArray) -> IntArray:
        """Indices of the sequences whose blocks for `lengths` tokens are not all known."""
        indices: IntArray = (lengths > self.num_blocks[rows] * self.block_size).nonzero()[0]
        return indices

    def grow(self, rows: IntArray, seq_ids: IntArray, lengths: IntArray, tables: Mapping[int, BlockTable]) -> None:
        """Take over the blocks of each sequence's first `lengths` tokens."""
        for index in self.lacking(rows, lengths).tolist():
            row, need = rows[index], -(-int(lengths[index]) // self.block_size)
            have = int(self.num_blocks[row])
            self.blocks[row, have:need] = tables[int(seq_ids[index])][have:need]
            self.num_blocks[row] = need

    def add_block(
        self, rows: IntArray, seq_ids: IntArray, tables: Mapping[int, BlockTable]
    ) -> tuple[IntArray, list[int]]:
        """Take over the next block of each sequence; where it stands in the table, and which it is."""
        pages = self.num_blocks[rows]
        blocks = [tables[seq_id][page] for seq_id, page in zip(seq_ids.tolist(), pages.tolist(), strict=True)]
        self.blocks[rows, pages] = blocks
        self.num_blocks[rows] = pages + 1
        return pages, blocks

    def ask(self, rows: IntArray, seq_ids: IntArray, starts: IntArray, lengths: IntArray) -> None:
        """Make the tokens `starts` to `lengths` of these sequences known."""
        for index in (lengths > self._known[rows]).nonzero()[0].tolist():
            row, stop = rows[index], int(lengths[index])
            start = max(int(starts[index]), int(self._known[row]))
            self.tokens[row, start:stop] = self._prompts.tokens(int(seq_ids[index]), start, stop)
            self._known[row] = stop

    def expect(self, rows: IntArray, lengths: IntArray) -> None:
        """The sequences, `lengths` tokens long, draw one more each; `tokens` gets it from who knows it."""
        self._known[rows] = lengths + 1
        fresh = self._first_drawn[rows] == 0
        self._first_drawn[rows[fresh]] = lengths[fresh]

    def stored_of(self, seq_ids: IntArray) -> IntArray:
        """[sequences] tokens of each in the cache; 0 of those not known."""
        rows = self.find(seq_ids)
        return np.where(rows < 0, 0, self.stored[rows])

    def _drawn_in(self, row: int) -> TokenIds:
        first = self._first_drawn[row]
        return self.tokens[row, first : self._known[row]] if first else NO_TOKENS

    def _add(self, seq_id: int, tables: Mapping[int, BlockTable]) -> None:
        if not self._free:
            self._make_room(tables)
        row = self._free.pop()
        self._row_of[seq_id] = row
        self._id_of[row] = seq_id
        self.stored[row] = self.num_blocks[row] = self._known[row] = self._first_drawn[row] = 0

    def _drop(self, seq_id: int, row: int) -> None:
        if self._keep:
            self._drawn[seq_id] = self._drawn_in(row).copy()
        self._row_of[seq_id] = -1
        del self._id_of[row]
        self._free.append(row)

    def _make_room(self, tables: Mapping[int, BlockTable]) -> None:
        """Drop those whose end no plan told (the queue was empty then); if there are none, double the rows."""
        for row, seq_id in list(self._id_of.items()):
            if self.num_blocks[row] and seq_id not in tables:
                self._drop(seq_id, row)
        if not self._free:
            size = len(self.stored)
            for name in ("tokens", "blocks", "stored", "num_blocks", "_known", "_first_drawn"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate((old, np.zeros_like(old))))
            self._free = list(range(size, 2 * size))
