"""From the columns of a plan to the inputs of a forward pass.

Almost all of a decode step follows from the step before, so it is written down while the device is still busy with
that one (`foresee`); `prepare` adds what only the plan tells: new blocks and the tokens just drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpu_backend.buckets import Buckets, Shape, bucket_of, decode_shape, mixed_shape
from gpu_backend.packing import Buffers, Fields, Packed
from gpu_backend.prompts import TokenIds
from gpu_backend.sequences import Sequences
from kvsim.plan import IntArray, StepPlan, ones


class Columns(NamedTuple):
    """Rows of a step as in `StepPlan`, named by their row of `Sequences`; one that writes nothing starts at slot -1."""

    rows: IntArray
    positions: IntArray
    num_tokens: IntArray
    slot_starts: IntArray
    lengths: IntArray
    num_samples: IntArray


class Step(NamedTuple):
    """Inputs on the host.

    Attributes:
        captured: a CUDA graph of this shape exists.
        width: entries of the block tables.
        columns: the rows, those of one token first.
        token_rows, token_positions: [tokens] where `Sequences.tokens` has each of them.
        sampled: rows of `columns` that draw, in the order of the samples.
    """

    shape: Shape
    captured: bool
    width: int
    max_seq_len: int
    packed: Packed
    columns: Columns
    token_rows: IntArray
    token_positions: IntArray
    sampled: IntArray


class InputBuilder:
    """Writes the inputs of one step after the other.

    Args:
        max_rows, query_tile: as in `ModelRunner`.
    """

    def __init__(
        self, sequences: Sequences, buffers: Buffers, buckets: Buckets, *, max_rows: int, query_tile: int
    ) -> None:
        self._sequences = sequences
        self._buffers = buffers
        self._decode = {rows: decode_shape(rows) for rows in buckets.decode}
        self._mixed = {tokens: mixed_shape(tokens, max_rows, query_tile) for tokens in buckets.mixed}
        self._buckets = buckets
        self._query_tile = query_tile
        self._block_size = sequences.block_size
        self._width = sequences.blocks.shape[1]
        self._guess: Step | None = None

    def prepare(self, plan: StepPlan) -> Step:
        """The inputs of `plan`, on their way to the device."""
        known = self._sequences
        known.release(plan)
        step, self._guess = self._guess, None
        if step is not None and self._came_true(step, plan):
            self._add_blocks(step, plan)
        else:
            step = self._stage(self._columns(plan), plan.padding_tokens)
        count = len(step.token_rows)
        fields = step.packed.fields
        fields.input_ids[:count] = known.tokens[step.token_rows, step.token_positions]
        fields.input_ids[count:] = 0
        self._buffers.send(step.packed)
        known.stored[step.columns.rows] = step.columns.lengths
        return step

    def foresee(self, plan: StepPlan, stopped: IntArray) -> None:
        """Write down the step after `plan` in case everyone who goes on decodes and nobody joins."""
        rows = len(plan.seq_ids)
        if plan.idle_rows or (plan.num_decodes < rows and not plan.num_samples.all()):
            return
        goes_on = np.delete(np.arange(rows), stopped)
        positions = plan.context_lens[goes_on]
        if not len(goes_on) or positions.max() >= self._width * self._block_size:
            return
        slot_starts = (plan.slot_starts + plan.num_tokens)[goes_on]
        one = ones(len(goes_on))
        self._guess = self._stage(
            Columns(self._sequences.find(plan.seq_ids)[goes_on], positions, one, slot_starts, positions + 1, one)
        )

    def take_in(self, step: Step, drawn: TokenIds) -> None:
        """The tokens that the samples of `step` drew; what idle rows draw is nobody's."""
        columns = step.columns
        rows, lengths = columns.rows[step.sampled], columns.lengths[step.sampled]
        busy = columns.slot_starts[step.sampled] >= 0
        if not busy.all():
            rows, lengths, drawn = rows[busy], lengths[busy], drawn[busy]
        self._sequences.append(rows, lengths, drawn)

    def _came_true(self, step: Step, plan: StepPlan) -> bool:
        guess = step.columns
        return (
            plan.num_decodes == len(plan.seq_ids) == len(guess.rows)
            and not plan.idle_rows
            and not plan.padding_tokens
            and np.array_equal(plan.positions, guess.positions)
            and np.array_equal(plan.slot_starts, guess.slot_starts)
            and np.array_equal(self._sequences.find(plan.seq_ids), guess.rows)
        )

    def _add_blocks(self, step: Step, plan: StepPlan) -> None:
        """Blocks that the rows of a guess, all of one token, were given since."""
        columns = step.columns
        grown = self._sequences.grow(columns.rows, plan.seq_ids, columns.lengths, plan.tables)
        if len(grown):
            rows = columns.rows[grown]
            step.packed.fields.block_tables[grown] = self._sequences.blocks[rows, : step.width]
            step.packed.fields.slot_mapping[grown] = self._slots(rows, columns.slot_starts[grown])

    def _columns(self, plan: StepPlan) -> Columns:
        """The rows of a plan, then the idle ones, which read what they hold once more."""
        known = self._sequences
        rows = known.rows(plan.seq_ids, plan.tables)
        known.grow(rows, plan.seq_ids, plan.context_lens, plan.tables)
        known.ask(rows, plan.seq_ids, plan.positions, plan.positions + plan.num_tokens)
        columns = Columns(rows, plan.positions, plan.num_tokens, plan.slot_starts, plan.context_lens, plan.num_samples)
        if not plan.idle_rows:
            return columns
        busy = set(plan.seq_ids.tolist())
        idle = known.rows(np.array([seq_id for seq_id in plan.tables if seq_id not in busy]), plan.tables)
        stored, one = known.stored[idle], ones(len(idle))
        extra = Columns(idle, stored - 1, one, -one, stored, one)
        return Columns(*map(np.concatenate, zip(columns, extra, strict=True)))

    def _stage(self, columns: Columns, padding_tokens: int = 0) -> Step:
        """Everything but the token ids."""
        single = columns.num_tokens == 1
        singles, rows = int(np.count_nonzero(single)), len(single)
        if singles < rows:
            order = np.concatenate((single.nonzero()[0], (~single).nonzero()[0]))
            columns = Columns(*(column[order] for column in columns))
        sampled = (columns.num_samples > 0).nonzero()[0]
        new = columns.num_tokens[singles:]
        tokens = singles + int(new.sum())
        shape, captured = self._shape(tokens + padding_tokens, singles, new, len(sampled))
        longest = int(columns.lengths.max())
        width = self._width if captured else -(-longest // self._block_size)
        packed = self._buffers.take(shape, width)
        fields = packed.fields

        token_rows, positions, indices = columns.rows, columns.positions, columns.slot_starts
        ends = np.arange(1, rows + 1)
        if singles < rows:
            ends[singles:] = singles + new.cumsum()
            of = np.concatenate((np.arange(singles), np.repeat(np.arange(singles, rows), new)))
            nth = np.arange(tokens) - (ends - columns.num_tokens)[of]
            token_rows, positions, indices = token_rows[of], positions[of] + nth, indices[of] + nth
            self._write_tiles(fields, shape.singles, new)
        fields.positions[:tokens] = positions
        fields.positions[tokens:] = 0
        fields.slot_mapping[:tokens] = self._slots(token_rows, indices)
        fields.slot_mapping[tokens:] = -1
        fields.sample_tokens[: len(sampled)] = ends[sampled] - 1
        fields.sample_tokens[len(sampled) :] = 0
        self._write_rows(fields, columns, singles, shape.singles, ends)
        return Step(shape, captured, width, longest, packed, columns, token_rows, positions, sampled)

    def _shape(self, tokens: int, singles: int, new: IntArray, samples: int) -> tuple[Shape, bool]:
        """The bucket's shape, or the exact one; `new` are the tokens of each longer row."""
        if tokens == singles:
            bucket = bucket_of(self._buckets.decode, singles)
            if bucket is not None:
                return self._decode[bucket], True
        bucket = bucket_of(self._buckets.mixed, tokens)
        while bucket is not None:
            shape = self._mixed[bucket]
            if singles <= shape.singles and len(new) <= shape.longs and samples <= shape.samples:
                return shape, True
            bucket = bucket_of(self._buckets.mixed, bucket + 1)
        tiles = int((-(-new // self._query_tile)).sum())
        return Shape(tokens, singles, len(new), tiles, samples), False

    def _slots(self, rows: IntArray, indices: IntArray) -> IntArray:
        """Slots of the tokens with these indices in the tables of these rows; -1 stays."""
        size = self._block_size
        slots: IntArray = self._sequences.blocks[rows, indices // size] * np.int64(size) + indices % size
        return np.where(indices < 0, -1, slots)

    def _write_rows(self, fields: Fields, columns: Columns, singles: int, first_long: int, ends: IntArray) -> None:
        """Lengths, tables and token ranges; longer rows begin at row `first_long`, before them empty ones pad."""
        rows = len(ends)
        last = first_long + rows - singles
        fields.query_start_loc[0] = 0
        fields.seq_lens[singles:first_long] = 0
        fields.seq_lens[last:] = 0
        fields.query_start_loc[singles + 1 : first_long + 1] = singles
        fields.query_start_loc[last + 1 :] = ends[-1]
        width = fields.block_tables.shape[1]
        used = min(width, -(-int(columns.lengths.max()) // self._block_size))
        blocks = self._sequences.blocks
        for first, part in ((0, slice(0, singles)), (first_long, slice(singles, rows))):
            stop = first + part.stop - part.start
            fields.query_start_loc[first + 1 : stop + 1] = ends[part]
            fields.seq_lens[first:stop] = columns.lengths[part]
            fields.block_tables[first:stop, :used] = blocks[columns.rows[part], :used]

    def _write_tiles(self, fields: Fields, first_long: int, new: IntArray) -> None:
        """Query tiles of the longer rows, which begin at row `first_long`."""
        counts = -(-new // self._query_tile)
        of = np.repeat(np.arange(len(new)), counts)
        nth = np.arange(len(of)) - (counts.cumsum() - counts)[of]
        fields.query_tiles[: len(of), 0] = first_long + of
        fields.query_tiles[: len(of), 1] = nth * self._query_tile
        fields.query_tiles[len(of) :, 0] = -1
