"""Inputs of a step, compared with what the plan says, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from gpu_backend.buckets import Buckets, decode_shape, make_buckets, mixed_shape
from gpu_backend.inputs import InputBuilder, Step
from gpu_backend.packing import Buffers, batch_of
from gpu_backend.prompts import RandomPrompts
from gpu_backend.sequences import Sequences
from kvsim.plan import NO_ROWS, StepPlan, StepResult
from kvsim.protocols import CostModel
from kvsim.workload.outcomes import Outcomes
from tests.harness import PREEMPTING, SYSTEMS, build, execute, tight
from tests.record.plans import decodes, plan
from tests.reference.records import Job, Setup

TILE = 4
VOCABULARY = 1000


def drawn_token(seq_id: int, length: int) -> int:
    """What the sequence draws when it has so many tokens."""
    return (7 * seq_id + 13 * length) % VOCABULARY


class Inputs:
    """An executor that makes inputs, checks them and runs nothing."""

    def __init__(self, setup: Setup, jobs: Sequence[Job], outcomes: Outcomes, buckets: Buckets) -> None:
        self.prompts = RandomPrompts(0, VOCABULARY)
        self.sequences = Sequences(self.prompts, setup.max_model_len, setup.block_size, keep_tokens=False)
        rows = max(buckets.decode, default=0)
        shapes = [decode_shape(size) for size in buckets.decode]
        shapes += [mixed_shape(size, rows, TILE) for size in buckets.mixed]
        buffers = Buffers(shapes, self.sequences.blocks.shape[1], torch.device("cpu"))
        self.builder = InputBuilder(self.sequences, buffers, buckets, max_rows=rows, query_tile=TILE)
        self.jobs, self.outcomes, self.block_size = jobs, outcomes, setup.block_size
        self.stored: dict[int, int] = {}
        self.captured = self.foreseen = self.steps = 0

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        guess = self.builder._guess
        step = self.builder.prepare(plan)
        self.steps += 1
        self.foreseen += guess is not None and step is guess.step
        self.captured += step.captured
        self.check(plan, step)
        stopped = self.outcomes.draw(plan, 1)
        self.builder.foresee(step, plan, stopped)
        busy = {row.seq_id for row in plan.rows()}
        drawn = [
            drawn_token(seq_id, length) if seq_id in busy else -1  # idle rows draw for nobody
            for seq_id, length, samples in self.ordered(plan)
            if samples
        ]
        self.builder.take_in(step, np.array(drawn))
        return StepResult(np.array([1000 + plan.total_tokens]), stopped)

    def ordered(self, plan: StepPlan) -> list[tuple[int, int, int]]:
        """Sequence, tokens visible and samples of each row, rows of one token first, longest context first."""
        rows = [(row.num_tokens > 1, row.seq_id, row.context_len, row.num_samples) for row in plan.rows()]
        if plan.idle_rows:
            busy = {row.seq_id for row in plan.rows()}
            rows += [(False, seq_id, self.stored[seq_id], 1) for seq_id in plan.tables if seq_id not in busy]
        rows.sort(key=lambda row: (row[0], 0 if row[0] else -row[2]))
        return [row[1:] for row in rows]

    def token(self, seq_id: int, at: int) -> int:
        if at < self.jobs[seq_id].prompt:
            return int(self.prompts.tokens(seq_id, at, at + 1)[0])
        return drawn_token(seq_id, at)

    def check(self, plan: StepPlan, step: Step) -> None:
        step.packed.fetch()
        batch = batch_of(step.packed, step.shape, step.width, TILE, step.max_seq_len)
        planned = {row.seq_id: row for row in plan.rows()}
        ordered = self.ordered(plan)
        sequences, lengths = [row[0] for row in ordered], [row[1] for row in ordered]
        new = [planned[seq_id].num_tokens if seq_id in planned else 1 for seq_id in sequences]
        singles = new.count(1)
        self.stored.update({row.seq_id: row.context_len for row in plan.rows()})
        ids, positions, slots, ends = [], [], [], []
        for seq_id, length, count in zip(sequences, lengths, new, strict=True):
            table = plan.tables[seq_id]
            for at in range(length - count, length):
                ids.append(self.token(seq_id, at))
                positions.append(at)
                slot = table[at // self.block_size] * self.block_size + at % self.block_size
                slots.append(slot if seq_id in planned else -1)
            ends.append(len(ids))

        used = len(ids)
        assert batch.input_ids.tolist() == ids + [0] * (len(batch.input_ids) - used)
        assert batch.positions.tolist() == positions + [0] * (len(batch.positions) - used)
        assert batch.slot_mapping.tolist() == slots + [-1] * (len(batch.slot_mapping) - used)
        assert used + plan.padding_tokens <= len(batch.input_ids)
        assert batch.num_single_rows >= singles
        gap = batch.num_single_rows - singles
        starts = [0, *ends[:singles], *[singles] * gap, *ends[singles:]]
        padding = len(batch.seq_lens) + 1 - len(starts)
        assert batch.query_start_loc.tolist() == starts + [used] * padding
        assert batch.seq_lens.tolist() == lengths[:singles] + [0] * gap + lengths[singles:] + [0] * padding
        at = [*range(singles), *range(batch.num_single_rows, batch.num_single_rows + len(new) - singles)]
        for row, seq_id, length in zip(at, sequences, lengths, strict=True):
            pages = -(-length // self.block_size)
            assert batch.block_tables[row, :pages].tolist() == plan.tables[seq_id][:pages]
        tiles = [
            (row, first)
            for row, count in zip(at[singles:], new[singles:], strict=True)
            for first in range(0, count, TILE)
        ]
        assert [tuple(tile) for tile in batch.query_tiles.tolist() if tile[0] >= 0] == tiles
        assert (batch.query_tiles[len(tiles) :, 0] == -1).all()
        samples = [end - 1 for end, row in zip(ends, ordered, strict=True) if row[2]]
        assert batch.sample_tokens.tolist() == samples + [0] * (len(batch.sample_tokens) - len(samples))
        assert batch.max_seq_len >= max(lengths)


def run(system: str, buckets: Buckets) -> Inputs:
    setup, jobs = tight(system, seed=5, count=80)
    made: list[Inputs] = []

    def executor(cost: CostModel, outcomes: Outcomes) -> Inputs:
        made.append(Inputs(setup, jobs, outcomes, buckets))
        return made[0]

    log = execute(build(setup, jobs, executor=executor))
    assert len(log.finished()) == len(jobs)
    if system in PREEMPTING:
        assert log.summary["num_preemptions"]
    return made[0]


@pytest.mark.parametrize("system", SYSTEMS)
def test_exact_inputs(system: str) -> None:
    inputs = run(system, Buckets())
    assert not inputs.captured
    assert inputs.foreseen > inputs.steps / 10 or system == "fastertransformer"


@pytest.mark.parametrize("system", SYSTEMS)
def test_inputs_in_buckets(system: str) -> None:
    inputs = run(system, make_buckets(40, 128))
    assert inputs.captured > inputs.steps / 2


def test_rows_without_a_past_get_tokens_of_the_vocabulary() -> None:
    sequences = Sequences(RandomPrompts(0, VOCABULARY), 64, 4, keep_tokens=False)
    builder = InputBuilder(sequences, Buffers([], 16, torch.device("cpu")), Buckets(), max_rows=0, query_tile=TILE)
    tables = {900: list(range(16)), 3: list(range(20, 36))}
    step = builder.prepare(plan([(900, 40, 1, 1), (3, 8, 5, 0)], tables))
    expected = [*RandomPrompts(0, VOCABULARY).tokens(900, 40, 41), *RandomPrompts(0, VOCABULARY).tokens(3, 8, 13)]
    assert step.packed.fields.input_ids.tolist() == expected
    assert step.packed.fields.seq_lens.tolist() == [41, 13]


def test_a_released_sequence_may_come_back_with_another_table() -> None:
    sequences = Sequences(RandomPrompts(0, VOCABULARY), 64, 4, keep_tokens=False)
    builder = InputBuilder(sequences, Buffers([], 16, torch.device("cpu")), Buckets(), max_rows=0, query_tile=TILE)
    step = builder.prepare(decodes(9, tables={0: [1, 2, 3]}))
    builder.foresee(step, decodes(9, tables={0: [1, 2, 3]}), NO_ROWS)
    step = builder.prepare(decodes(10, tables={0: [7, 8, 9]}, released=(0,)))
    assert step.packed.fields.slot_mapping.tolist() == [9 * 4 + 2]


def test_rows_are_used_again() -> None:
    sequences = Sequences(RandomPrompts(0, VOCABULARY), 64, 4, keep_tokens=False)
    builder = InputBuilder(sequences, Buffers([], 16, torch.device("cpu")), Buckets(), max_rows=0, query_tile=TILE)
    for seq_id in range(500):
        # nobody says that they ended
        builder.prepare(plan([(seq_id, 0, 3, 1)], {seq_id: [seq_id % 9]}))
    assert len(sequences.stored) == 64
