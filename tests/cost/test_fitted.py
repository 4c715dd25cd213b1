"""FittedCost: curves over buckets, the law of fast-forward, what makes steps longer, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.calibrate.plans import PlanMaker, Row
from kvsim.config import build_cost, compose
from kvsim.cost.fitted import Curve, FittedCost, Rates
from kvsim.cost.shape import StepShape
from kvsim.errors import ConfigError, InvariantError
from kvsim.plan import StepPlan
from kvsim.specs import ModelSpec, load_model

US = 1000


def model(name: str = "tiny") -> ModelSpec:
    shape = compose(["model=opt-125m"]).model
    return load_model(**{key: shape[key] for key in shape if key not in ("_target_", "config", "name")}, name=name)


def rates(**changes: float) -> Rates:
    zero = dict.fromkeys([field.name for field in fields(Rates)], 0.0)
    return Rates(**zero | changes)


def fitted(**changes: Any) -> FittedCost:
    parts: dict[str, Any] = {
        "model": model(),
        "model_name": "tiny",
        "num_parameters": model().num_parameters,
        "decode": Curve([1, 8, 64], [500.0, 510.0, 700.0], True, 2.5),
        "mixed": Curve([16, 256, 1024], [600.0, 1500.0, 5000.0], True, 4.5),
        "head": Curve([1, 64], [50.0, 80.0], True, 0.5),
        "context": Curve([1, 8, 64], [9.0, 6.0, 4.0], True, 0.0),
        "rates": Rates(far_ns=2.5, longest_ns=1.5, token_ns=7.0, pair_ns=0.3, key_ns=2.0, step_us=70.0, row_us=1.3,
                       prompt_us=5.0),
    }  # fmt: skip
    return FittedCost(**parts | changes)


COST = fitted()
SMOOTH = fitted(
    decode=Curve([1, 8, 64], [500.0, 510.0, 700.0], False, 2.5),
    context=Curve([1, 64], [9.3, 4.1], False, 0.0),
    rates=rates(row_us=0.7),
)


def plan(rows: Sequence[Row], **fields: Any) -> StepPlan:
    made = PlanMaker(1 << 16, 16, False, np.random.default_rng(0)).make(rows)
    return made._replace(**fields)


def decodes(contexts: Sequence[int], **fields: Any) -> StepPlan:
    return plan([Row(1, context) for context in contexts], **fields)


def step(cost: FittedCost, step_plan: StepPlan) -> int:
    return int(cost.decode_run(step_plan, 1)[0])


def test_a_padded_curve_steps_and_another_one_bends() -> None:
    padded, bent = Curve([4, 8], [10.0, 20.0], True, 3.0), Curve([4, 8], [10.0, 20.0], False, 3.0)
    assert [padded.at(size) for size in (1, 4, 5, 8, 10)] == [10, 10, 20, 20, 26]
    assert [bent.at(size) for size in (1, 4, 5, 8, 10)] == [10, 10, 12.5, 20, 26]


@given(
    cost=st.sampled_from([COST, SMOOTH]),
    contexts=st.lists(st.integers(2, 4_000), min_size=1, max_size=80),
    idle=st.integers(0, 5),
    idle_context=st.integers(0, 9_000),
    repeats=st.integers(1, 50),
)
def test_jumping_equals_stepping(
    cost: FittedCost, contexts: list[int], idle: int, idle_context: int, repeats: int
) -> None:
    static = {"idle_rows": idle, "idle_context_tokens": idle_context}
    jump = cost.decode_run(decodes(contexts, **static), repeats)
    plans = [decodes([context + k for context in contexts], **static) for k in range(repeats)]
    assert jump.tolist() == [step(cost, one) for one in plans]
    assert jump.tolist() == [round(cost.predict(StepShape.of(one))) for one in plans]
    assert jump.dtype == np.int64
    assert (np.diff(jump) >= 0).all() and jump[0] > 0


def test_decodes_by_hand() -> None:
    # 3 rows and 2 idle ones run in the graph of 8
    one = decodes([100, 200, 50], idle_rows=2, idle_context_tokens=30)
    assert step(COST, one) == (510 + 70 + 5 * 1.3) * US + 6 * 380 + 1.5 * 200


def test_context_beyond_what_is_near_costs_more() -> None:
    near = decodes([100, 156])  # 128 tokens a row
    assert step(COST, near) == (510 + 70 + 2 * 1.3) * US + 6 * 256 + 1.5 * 156
    assert step(COST, decodes([100, 356])) - step(COST, near) == 200 * (6 + 2.5 + 1.5)
    # an idle row that reads little leaves more to the others
    idle = {"idle_rows": 1, "idle_context_tokens": 8}
    assert step(COST, decodes([100, 356], **idle)) - step(COST, decodes([100, 156], **idle)) == 200 * 7.5 + 80 * 2.5


def test_mixed_step_by_hand() -> None:
    # 2 decodes, a prompt of 20 and an unfinished chunk of 10 behind 30: 32 tokens in the graph of 256
    one = plan([Row(1, 100), Row(1, 40), Row(20, 20), Row(10, 40, 0)])
    pairs = 20 * 21 // 2 + 10 * 30 + 10 * 11 // 2
    us = 1500 + 80 + 70 + 4 * 1.3 + 5
    assert step(COST, one) == round(us * US + 6 * 140 + 1.5 * 100 + 7 * 32 + 0.3 * pairs + 2.0 * 60)


def test_padding_pays_for_its_bucket_only() -> None:
    prompts = [Row(10, 10), Row(14, 14)]
    bare, padded = plan(prompts), plan(prompts, padding_tokens=240)
    assert step(COST, padded) - step(COST, bare) == (5000 - 1500) * US


def test_beyond_the_last_edge_it_goes_on() -> None:
    assert step(COST, decodes([10] * 66)) == (700 + 2 * 2.5 + 70 + 66 * 1.3) * US + 4 * 660 + 1.5 * 10
    assert step(COST, plan([Row(1100, 1100)])) > step(COST, plan([Row(1024, 1024)])) + 76 * 4.5 * US


def test_prefill_plans_do_not_repeat() -> None:
    with pytest.raises(InvariantError, match="INV-fast-forward: step 0 has prefill rows and 2 repeats"):
        COST.decode_run(plan([Row(1, 5), Row(4, 4)]), 2)


def test_another_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="cost.model_name=other: .* not those of model=tiny"):
        fitted(model_name="other")
    with pytest.raises(ConfigError, match="cost.num_parameters=7: these step times are of a tiny of another shape"):
        fitted(num_parameters=7)


@pytest.mark.parametrize(
    ("edges", "values", "padded", "message"),
    [
        ([1, 2], [1.0], True, "2 edges and 1 values"),
        ([], [], True, "0 edges"),
        ([2, 1], [1.0, 1.0], True, "must ascend"),
        ([1, 1], [1.0, 1.0], True, "must ascend"),
        ([0], [1.0], True, "cost: edge=0"),
        ([1], [-1.0], True, "cost: value=-1.0"),
        ([1], [float("nan")], True, "cost: value=nan"),
        ([1], [1.0], 1, "padded=1: must be true or false"),
    ],
)
def test_bad_curves(edges: list[int], values: list[float], padded: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Curve(edges, values, padded, 0.0)


@pytest.mark.parametrize("value", [-1.0, float("inf"), True, "3"])
def test_bad_rates(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"cost\.rates\.row_us="):
        rates(row_us=value)


def test_cost_is_built_alone() -> None:
    assert (
        build_cost(compose(["cost=constant", "cost.seconds=2"])).decode_run(decodes([5]), 2).tolist() == [2 * 10**9] * 2
    )


@pytest.mark.parametrize("part", ["decode", "mixed", "head", "context", "rates"])
@pytest.mark.parametrize("value", [None, "x", {"edges": [1]}, Curve])
def test_parts_of_another_kind_are_named(part: str, value: Any) -> None:
    kind = "Rates" if part == "rates" else "Curve"
    with pytest.raises(ConfigError, match=rf"^cost\.{part}=.*: must have _target_: kvsim\.cost\.fitted\.{kind}"):
        fitted(**{part: value})


def test_steps_take_time() -> None:
    nothing = Curve([1, 8], [0.0, 5.0], True, 0.0)
    for part in ("decode", "mixed"):
        with pytest.raises(ConfigError, match=rf"cost\.{part}: a step would take 0 ns"):
            fitted(**{part: nothing, "rates": rates()})
        fitted(**{part: nothing, "rates": rates(step_us=0.001)})


@pytest.mark.parametrize("items", [None, 3, "12"])
def test_edges_and_values_are_lists(items: Any) -> None:
    with pytest.raises(ConfigError, match="cost: edges=.*: must be a list of numbers"):
        Curve(items, [1.0], True, 0.0)
    with pytest.raises(ConfigError, match="cost: values=.*: must be a list of numbers"):
        Curve([1], items, True, 0.0)
