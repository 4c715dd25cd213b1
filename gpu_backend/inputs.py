"""From the columns of a plan to the inputs of a forward pass.

Almost all of a decode step follows from the step before, so it is staged while the device is still busy with that one
(`foresee`); `prepare` adds what only the plan tells: new blocks and the tokens just drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpu_backend.buckets import Buckets, Shape, bucket_of, decode_shape, mixed_shape
from gpu_backend.packing import Buffers, Fields, Packed
from gpu_backend.sequences import Sequences
from kvsim.plan import IntArray, StepPlan, ones


class Columns(NamedTuple):
    """Rows of a step as in `StepPlan`, and their row of `Sequences`; one that writes nothing starts at slot -1."""

    seq_ids: IntArray
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
        columns: the rows in the order of `Batch`.
        token_rows, token_positions: [tokens] where `Sequences.tokens` has each of them.
        drawn_rows, drawn_positions: [samples] where it takes what each draws; the last entry is nobody's.
    """

    shape: Shape
    captured: bool
    width: int
    max_seq_len: int
    packed: Packed
    columns: Columns
    token_rows: IntArray
    token_positions: IntArray
    drawn_rows: IntArray
    drawn_positions: IntArray


class Guess(NamedTuple):
    """A step to come.

    Attributes:
        columns: the rows in the order of its plan.
        lacking: rows of `step` that will have a new block.
    """

    columns: Columns
    step: Step
    lacking: IntArray


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
        self._guess: Guess | None = None

    def prepare(self, plan: StepPlan) -> Step:
        """The inputs of `plan`, for the device to fetch.

        Raises:
            ValueError: a row draws more than one token.
        """
        most = plan.num_samples.max(initial=0)
        if most > 1:
            raise ValueError(f"step {plan.step}: a row draws {most} tokens, at most 1 is supported")
        known = self._sequences
        known.release(plan)
        guess, self._guess = self._guess, None
        if guess is not None and self._came_true(guess, plan):
            step = guess.step
            if len(guess.lacking):
                self._add_blocks(step, guess.lacking, plan)
        else:
            step = self._stage(self._columns(plan), plan.padding_tokens)
        ids = known.tokens[step.token_rows, step.token_positions]
        step.packed.fields.input_ids[: len(ids)] = ids
        step.packed.seal()
        return step

    def foresee(self, step: Step, plan: StepPlan, stopped: IntArray) -> None:
        """Note what a step leaves behind, and stage the next in case everyone who goes on decodes and nobody joins."""
        known, columns = self._sequences, step.columns
        known.stored[columns.rows] = columns.lengths
        busy = step.drawn_positions >= 0
        known.expect(step.drawn_rows[busy], step.drawn_positions[busy])
        rows = len(plan.seq_ids)
        if plan.idle_rows or (plan.num_decodes < rows and not plan.num_samples.all()):
            return
        goes_on = np.delete(np.arange(rows), stopped)
        positions = plan.context_lens[goes_on]
        if not len(goes_on) or positions.max() >= self._width * self._block_size:
            return
        seq_ids, one = plan.seq_ids[goes_on], ones(len(goes_on))
        slot_starts = (plan.slot_starts + plan.num_tokens)[goes_on]
        guess = Columns(seq_ids, known.find(seq_ids), positions, one, slot_starts, positions + 1, one)
        foreseen = self._stage(guess)
        self._guess = Guess(guess, foreseen, known.lacking(foreseen.columns.rows, foreseen.columns.lengths))

    def take_in(self, step: Step, drawn: IntArray) -> None:
        """The tokens that the samples of `step` drew; what idle rows draw is nobody's."""
        self._sequences.tokens[step.drawn_rows, step.drawn_positions] = drawn

    def _came_true(self, guess: Guess, plan: StepPlan) -> bool:
        columns = guess.columns
        return (
            plan.num_decodes == len(plan.seq_ids) == len(columns.rows)
            and not plan.idle_rows
            and not plan.padding_tokens
            and bool((plan.positions == columns.positions).all())
            and bool((plan.slot_starts == columns.slot_starts).all())
            and bool((self._sequences.find(plan.seq_ids) == columns.rows).all())
        )

    def _add_blocks(self, step: Step, lacking: IntArray, plan: StepPlan) -> None:
        """Blocks that rows of a guess, all of one token, were given since."""
        columns, fields = step.columns, step.packed.fields
        rows, indices = columns.rows[lacking], columns.slot_starts[lacking]
        pages, blocks = self._sequences.add_block(rows, columns.seq_ids[lacking], plan.tables)
        fields.block_tables[lacking, pages] = blocks
        fields.slot_mapping[lacking] = self._slots(rows, indices)

    def _columns(self, plan: StepPlan) -> Columns:
        """The rows of a plan, then the idle ones, which read what they hold once more."""
        known = self._sequences
        rows = known.rows(plan.seq_ids, plan.tables)
        known.grow(rows, plan.seq_ids, plan.context_lens, plan.tables)
        known.ask(rows, plan.seq_ids, plan.positions, plan.positions + plan.num_tokens)
        columns = Columns(
            plan.seq_ids, rows, plan.positions, plan.num_tokens, plan.slot_starts, plan.context_lens, plan.num_samples
        )
        if not plan.idle_rows:
            return columns
        busy = set(plan.seq_ids.tolist())
        idle_ids = np.array([seq_id for seq_id in plan.tables if seq_id not in busy])
        idle, one = known.rows(idle_ids, plan.tables), ones(len(idle_ids))
        stored = known.stored[idle]
        extra = Columns(idle_ids, idle, stored - 1, one, -one, stored, one)
        return Columns(*map(np.concatenate, zip(columns, extra, strict=True)))

    def _stage(self, columns: Columns, padding_tokens: int = 0) -> Step:
        """Everything but the token ids."""
        single = columns.num_tokens == 1
        singles, rows = int(np.count_nonzero(single)), len(single)
        order = np.where(single, -columns.lengths, 1).argsort(kind="stable")
        columns = Columns(*(column[order] for column in columns))
        sampled = columns.num_samples.nonzero()[0]
        ends = columns.num_tokens.cumsum()
        tokens = int(ends[-1])
        new = columns.num_tokens[singles:]
        shape, captured = self._shape(tokens + padding_tokens, singles, new, len(sampled))
        longest = int(columns.lengths.max())
        width = self._width if captured else -(-longest // self._block_size)
        packed = self._buffers.take(shape, width)
        fields = packed.fields

        token_rows, positions, indices = columns.rows, columns.positions, columns.slot_starts
        if singles < rows:
            first, nth = ends - columns.num_tokens, np.arange(tokens)
            token_rows = token_rows.repeat(columns.num_tokens)
            positions = (positions - first).repeat(columns.num_tokens) + nth
            indices = (indices - first).repeat(columns.num_tokens) + nth
            self._write_tiles(fields, shape.singles, new)
        fields.input_ids[tokens:] = 0
        fields.positions[:tokens] = positions
        fields.positions[tokens:] = 0
        fields.slot_mapping[:tokens] = self._slots(token_rows, indices)
        fields.slot_mapping[tokens:] = -1
        fields.sample_tokens[: len(sampled)] = ends[sampled] - 1
        fields.sample_tokens[len(sampled) :] = 0
        self._write_rows(fields, columns, singles, shape.singles, ends)
        drawn_rows = columns.rows[sampled]
        drawn_positions = np.where(columns.slot_starts < 0, -1, columns.lengths)[sampled]
        return Step(
            shape, captured, width, longest, packed, columns, token_rows, positions, drawn_rows, drawn_positions
        )

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
        blocks = self._sequences.blocks[:, : fields.block_tables.shape[1]]
        for first, part in ((0, slice(0, singles)), (first_long, slice(singles, rows))):
            stop = first + part.stop - part.start
            fields.query_start_loc[first + 1 : stop + 1] = ends[part]
            fields.seq_lens[first:stop] = columns.lengths[part]
            blocks.take(columns.rows[part], axis=0, out=fields.block_tables[first:stop], mode="clip")

    def _write_tiles(self, fields: Fields, first_long: int, new: IntArray) -> None:
        """Query tiles of the longer rows, which begin at row `first_long`."""
        counts = -(-new // self._query_tile)
        of = np.repeat(np.arange(len(new)), counts)
        nth = np.arange(len(of)) - (counts.cumsum() - counts)[of]
        fields.query_tiles[: len(of), 0] = first_long + of
        fields.query_tiles[: len(of), 1] = nth * self._query_tile
        fields.query_tiles[len(of) :, 0] = -1
