"""The grid: every bucket is met, every plan can be carried out."""

from __future__ import annotations

import numpy as np
import pytest

from kvsim.calibrate.grid import Grid, Limits, Step
from kvsim.calibrate.plans import PlanMaker, Row
from kvsim.calibrate.points import Buckets
from kvsim.cost.shape import StepShape
from kvsim.errors import ConfigError

BUCKETS = Buckets((1, 2, 4, 8, 16, 32), (16, 32, 64, 256), (1, 8, 32))
LIMITS = Limits(rows=32, tokens=1000, length=600)


def grid(buckets: Buckets = BUCKETS, num_blocks: int = 2000, contiguous: bool = False, seed: int = 0) -> list[Step]:
    rng = np.random.default_rng(seed)
    return Grid(PlanMaker(num_blocks, 16, contiguous, rng), buckets, LIMITS, rng).steps()


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize("num_blocks", [80, 2000])
@pytest.mark.parametrize("buckets", [BUCKETS, Buckets()])
def test_plans_lie_in_the_pool_and_keep_to_the_limits(contiguous: bool, num_blocks: int, buckets: Buckets) -> None:
    for step in grid(buckets, num_blocks, contiguous):
        plan, shape = step.plan, StepShape.of(step.plan)
        assert 1 <= shape.rows <= LIMITS.rows
        assert shape.all_tokens <= LIMITS.tokens
        assert plan.total_tokens == plan.num_tokens.sum() and plan.context_tokens == plan.context_lens.sum()
        assert (plan.positions >= 0).all() and (plan.context_lens <= LIMITS.length).all()
        assert (plan.slot_starts + plan.num_tokens == plan.context_lens).all()
        tables = [plan.tables[seq_id] for seq_id in plan.seq_ids.tolist()]
        assert [len(table) for table in tables] == [-(-context // 16) for context in plan.context_lens.tolist()]
        blocks = [block for table in tables for block in table]
        assert len(set(blocks)) == len(blocks) and min(blocks) >= 0 and max(blocks) < num_blocks
        if contiguous:
            assert all(table == list(range(table[0], table[0] + len(table))) for table in tables)


def test_every_bucket_and_kind_is_met() -> None:
    steps = grid()
    shapes = {kind: [StepShape.of(step.plan) for step in steps if step.kind == kind] for kind in ("decode", "mixed")}
    kinds = {step.kind for step in steps}
    assert kinds == {"decode", "prefill", "mixed", "padded"}
    rows = [shape.rows for shape in shapes["decode"]]
    assert set(BUCKETS.decode) <= set(rows)
    others = [StepShape.of(step.plan) for step in steps if step.kind in ("prefill", "mixed")]
    for low, high in zip((0, *BUCKETS.mixed), (*BUCKETS.mixed, 1000), strict=False):
        assert any(low < shape.all_tokens <= high for shape in others)
    assert all(shape.decodes_only for shape in shapes["decode"])
    assert any(shape.keys > shape.tokens for shape in others)  # chunks behind others
    assert any(shape.samples < shape.rows for shape in others)  # and unfinished ones
    assert all(step.plan.padding_tokens > 0 for step in steps if step.kind == "padded")


def test_same_seed_same_grid() -> None:
    first, second = grid(seed=3), grid(seed=3)
    assert [StepShape.of(step.plan) for step in first] == [StepShape.of(step.plan) for step in second]


def test_a_pool_that_is_too_small_says_so() -> None:
    with pytest.raises(ConfigError, match="pool of 3 blocks holds no 100 tokens"):
        PlanMaker(3, 16, False, np.random.default_rng(0)).make([Row(1, 100)])
