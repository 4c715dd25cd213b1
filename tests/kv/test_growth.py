"""Jumping equals stepping: `grow` over many rounds against one `allocate` after another."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.errors import InvariantError
from kvsim.kv.paged import PagedAllocator
from kvsim.plan import IntArray
from kvsim.request import Sequence
from tests.kv.holders import free_order, hold, holder


class Batch(NamedTuple):
    """A pool with a scrambled free queue and the sequences that decode in it, in some order."""

    pool: PagedAllocator
    seqs: list[Sequence]
    num_tokens: IntArray

    def twin(self) -> Batch:
        pool, seqs = copy.deepcopy((self.pool, self.seqs))
        return Batch(pool, seqs, self.num_tokens.copy())


@st.composite
def batches(draw: st.DrawFn, spare: st.SearchStrategy[int]) -> Batch:
    """`spare` free blocks are left when everybody holds what they hold."""
    block_size = draw(st.sampled_from([1, 2, 4, 8, 16, 64, 256]))
    near = st.integers(0, 2).map(lambda blocks: max(1, blocks * block_size))
    tokens = draw(st.lists(near | st.integers(1, 3 * block_size), min_size=1, max_size=12))
    held = sum(-(-count // block_size) for count in tokens)
    junk = draw(st.integers(0, min(6, held)))
    pool = PagedAllocator(held + junk + draw(spare), block_size, max_model_len=1 << 20)
    fillers = [holder(pool, 100 + filler, block_size) for filler in range(junk)]
    seqs = [holder(pool, seq_id, count) for seq_id, count in enumerate(tokens)]
    for filler in draw(st.permutations(fillers)):
        pool.free(filler)
    order = draw(st.permutations(range(len(seqs))))
    return Batch(pool, [seqs[row] for row in order], np.array([tokens[row] for row in order], dtype=np.int64))


def step(batch: Batch, rounds: int) -> list[int] | None:
    """Rounds of allocate(seq, held + 1); slots newly held after each, cumulative. None if one does not fit."""
    before = batch.pool.usage().held
    growth = []
    for _ in range(rounds):
        for seq in batch.seqs:
            if not hold(batch.pool, seq, seq.num_computed_tokens + 1):
                return None
        growth.append(batch.pool.usage().held - before)
    return growth


@given(data=st.data(), batch=batches(spare=st.integers(0, 40)))
def test_grow_equals_rounds_of_allocate(data: st.DataObject, batch: Batch) -> None:
    steps = data.draw(st.integers(1, 3 * batch.pool.block_size + 3))
    stepped = batch.twin()
    growth = step(stepped, steps)
    if growth is None:
        with pytest.raises(InvariantError, match="INV-blocks"):
            batch.pool.grow(batch.seqs, batch.num_tokens, steps)
        return
    assert batch.pool.grow(batch.seqs, batch.num_tokens, steps).tolist() == growth
    assert batch.pool.tables == stepped.pool.tables
    assert batch.pool.usage() == stepped.pool.usage()
    batch.pool.check_integrity()
    assert free_order(batch.pool) == free_order(stepped.pool)


@given(data=st.data(), batch=batches(spare=st.just(60)))
def test_two_jumps_equal_one(data: st.DataObject, batch: Batch) -> None:
    first = data.draw(st.integers(1, 2 * batch.pool.block_size))
    second = data.draw(st.integers(1, batch.pool.block_size))
    twice = batch.twin()
    whole = batch.pool.grow(batch.seqs, batch.num_tokens, first + second)
    begun = twice.pool.grow(twice.seqs, batch.num_tokens, first)
    rest = twice.pool.grow(twice.seqs, batch.num_tokens + first, second) + begun[-1]
    assert whole.tolist() == [*begun.tolist(), *rest.tolist()]
    assert batch.pool.tables == twice.pool.tables


@given(batch=batches(spare=st.integers(0, 12)))
def test_every_step_promised_passes_the_conservative_test(batch: Batch) -> None:
    steps = min(batch.pool.max_decode_steps(batch.num_tokens), 2 * batch.pool.block_size)
    rows = len(batch.seqs)
    for done in range(steps):
        assert batch.pool.num_appendable(batch.num_tokens + done) == rows, f"step {done} of {steps}"
        batch.pool.grow(batch.seqs, batch.num_tokens + done, 1)
    batch.pool.check_integrity()


@given(batch=batches(spare=st.integers(0, 12)))
def test_a_step_is_promised_whenever_more_is_free_than_it_takes(batch: Batch) -> None:
    crossing = int((batch.num_tokens % batch.pool.block_size == 0).sum())
    free = batch.pool.num_free_blocks
    assert (batch.pool.max_decode_steps(batch.num_tokens) >= 1) == (free > crossing)


@given(batch=batches(spare=st.integers(0, 12)))
def test_num_appendable_equals_a_naive_loop(batch: Batch) -> None:
    free = batch.pool.num_free_blocks
    passing = 0
    for tokens in batch.num_tokens.tolist():
        if not free:
            break
        free -= tokens % batch.pool.block_size == 0
        passing += 1
    assert batch.pool.num_appendable(batch.num_tokens) == passing


def test_many_sequences_over_several_blocks() -> None:
    tokens = np.arange(1, 301)
    pool = PagedAllocator(8000, 16, max_model_len=1 << 20)
    batch = Batch(pool, [holder(pool, seq_id, int(count)) for seq_id, count in enumerate(tokens)], tokens)
    stepped = batch.twin()
    assert pool.grow(batch.seqs, tokens, 75).tolist() == step(stepped, 75)
    assert pool.tables == stepped.pool.tables
