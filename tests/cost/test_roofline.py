"""RooflineCost: the law of fast-forward, what makes steps longer, sizes against hand arithmetic, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from kvsim.cost.roofline import Efficiency, Host, RooflineCost
from kvsim.errors import ConfigError, InvariantError
from kvsim.plan import StepPlan

CONF = Path(__file__).parents[2] / "conf"
MS = 1e6


def load(group: str, name: str, **changes: Any) -> Any:
    return instantiate(OmegaConf.merge(OmegaConf.load(CONF / group / f"{name}.yaml"), changes))


def cost(name: str, model: str = "opt-13b", card: str = "a100-40gb", gpus: int = 1, **changes: Any) -> RooflineCost:
    factory = load("cost", name, **changes)
    built = factory(model=load("model", model), hardware=load("hardware", card, tensor_parallel=gpus))
    assert isinstance(built, RooflineCost)
    return built


def plan(decodes: Sequence[int] = (), prefills: Sequence[tuple[int, int]] = (), **fields: Any) -> StepPlan:
    """Decode rows of these contexts (after the write), then prefill rows of (new tokens, context after the write)."""
    num_tokens = np.array([1] * len(decodes) + [new for new, _ in prefills], dtype=np.int64)
    context_lens = np.array([*decodes, *(context for _, context in prefills)], dtype=np.int64)
    starts = context_lens - num_tokens
    return StepPlan(
        step=0,
        seq_ids=np.arange(len(num_tokens)),
        positions=starts,
        num_tokens=num_tokens,
        slot_starts=starts,
        context_lens=context_lens,
        num_samples=np.ones_like(num_tokens),
        tables={},
        total_tokens=int(num_tokens.sum()),
        context_tokens=int(context_lens.sum()),
        num_decodes=len(decodes),
        **fields,
    )


def step_ms(model: RooflineCost, step: StepPlan) -> float:
    return float(model.decode_run(step, 1)[0]) / MS


PAPER = cost("paper_a100")
MODERN = cost("roofline")
HOST_BOUND = cost("roofline", "opt-125m", "h200", host={"fixed_us": 900.0})
SHARDED = cost("paper_a100", "opt-66b", gpus=4)


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from([PAPER, MODERN, HOST_BOUND, SHARDED]),
    contexts=st.lists(st.integers(1, 100_000), min_size=1, max_size=40),
    idle_rows=st.integers(0, 5),
    repeats=st.integers(1, 50),
)
def test_jumping_equals_stepping(model: RooflineCost, contexts: list[int], idle_rows: int, repeats: int) -> None:
    jump = model.decode_run(plan(contexts, idle_rows=idle_rows), repeats)
    steps = [
        model.decode_run(plan([context + k for context in contexts], idle_rows=idle_rows), 1)[0] for k in range(repeats)
    ]
    assert jump.tolist() == [int(step) for step in steps]
    assert jump.dtype == np.int64 and jump.shape == (repeats,)
    assert jump.min() > 0


def test_host_bound_steps_become_device_bound_within_a_run() -> None:
    durations = HOST_BOUND.decode_run(plan([2_000] * 30), 1_000)
    assert durations[0] == ((900 + 30 * 10) * 1000)
    assert durations[-1] > durations[0]
    assert (np.diff(durations) >= 0).all()


@pytest.mark.parametrize("model", [PAPER, MODERN, SHARDED])
def test_more_work_never_takes_less_time(model: RooflineCost) -> None:
    longer = [step_ms(model, plan([context] * 8)) for context in (1, 10, 500, 5_000)]
    wider = [step_ms(model, plan([500] * rows)) for rows in (1, 2, 16, 256, 4_096)]
    prompts = [step_ms(model, plan([], [(new, new)])) for new in (1, 2, 64, 512, 4_096)]
    later = [step_ms(model, plan([], [(512, context)])) for context in (512, 1_024, 8_192)]
    for series in (longer, wider, later):
        assert series == sorted(series) and len(set(series)) == len(series)
    assert prompts == sorted(prompts)


def test_no_table_to_fall_out_of() -> None:
    assert step_ms(PAPER, plan([10_000_000] * 5_000)) > 0
    assert step_ms(PAPER, plan([], [(1_000_000, 1_000_000)] * 3)) > 0
    assert PAPER.decode_run(plan([7]), 100_000).shape == (100_000,)


def test_single_decode_by_hand() -> None:
    exact = cost(
        "paper_a100",
        efficiency={"gemm_memory": 1.0, "attention_memory": 1.0},
        host={"fixed_us": 0.0, "per_sequence_us": 0.0},
        launch_us_per_layer=0.0,
    )
    bytes_read = 2 * (12_853_473_280 - 2050 * 5120 - 2 * 5120) + 401 * 819_200  # KV: 400 tokens read, one written
    assert step_ms(exact, plan([400])) == pytest.approx(bytes_read / 1.555e12 * 1e3, rel=1e-6)


def test_prefill_by_hand() -> None:
    exact = cost("paper_a100", efficiency={"gemm_compute": 1.0}, host={"fixed_us": 0.0, "per_sequence_us": 0.0})
    other = step_ms(exact, plan([512])) - step_ms(exact, plan([], [(512, 512)]))
    layers = 40 * (12 * 5120**2 + 13 * 5120)
    flops = 2 * layers * 512 + 4 * 40 * 5120 * (512 * 513 // 2)
    memory = 2 * layers / (1.555e12 * 0.85) * 1e3
    written = 511 * 819_200 / (1.555e12 * 0.5) * 1e3
    assert -other == pytest.approx(flops / 312e12 * 1e3 - memory + written, rel=1e-6)


def test_chunks_cost_more_than_the_whole_prompt_but_attend_to_the_same_pairs() -> None:
    free = cost(
        "paper_a100",
        host={"fixed_us": 0.0, "per_sequence_us": 0.0},
        launch_us_per_layer=0.0,
        efficiency={"gemm_memory": 1.0},
    )
    whole = step_ms(free, plan([], [(2_048, 2_048)]))
    chunks = step_ms(free, plan([], [(1_024, 1_024)])) + step_ms(free, plan([], [(1_024, 2_048)]))
    assert whole < chunks < 1.02 * whole


def test_head_is_charged_for_sampled_rows_only() -> None:
    last, unfinished = plan([], [(256, 256)]), plan([], [(256, 256)])
    unfinished = unfinished._replace(num_samples=np.zeros(1, dtype=np.int64))
    head = 2 * 50272 * 5120 / (1.555e12 * 0.85) * 1e3
    assert step_ms(PAPER, last) - step_ms(PAPER, unfinished) == pytest.approx(head, rel=1e-4)


def test_static_batch_pays_for_padding_and_finished_members() -> None:
    prompts = [(100, 100), (400, 400)]
    assert step_ms(PAPER, plan([], prompts, padding_tokens=300)) > step_ms(PAPER, plan([], prompts)) + 20
    assert step_ms(PAPER, plan([500] * 5, idle_rows=3)) == pytest.approx(step_ms(PAPER, plan([500] * 8)), rel=1e-9)


def test_tensor_parallelism_divides_work_and_adds_hops() -> None:
    without_hops = [
        step_ms(cost("roofline", "llama-3-70b", "h200", gpus, allreduce_hop_us=0.0), plan([1_000] * 64))
        for gpus in (1, 2, 4, 8)
    ]
    assert without_hops == sorted(without_hops, reverse=True)
    assert without_hops[0] / without_hops[3] > 5
    slow = [step_ms(cost("roofline", "llama-3-70b", "h200", 8, allreduce_hop_us=h), plan([1_000])) for h in (0.0, 10.0)]
    assert slow[1] - slow[0] == pytest.approx(80 * 2 * 14 * 0.010)
    with pytest.raises(ConfigError, match="cannot split the 40 heads"):
        cost("roofline", "opt-13b", "h200", 16)


def test_overlap_is_the_slower_of_host_and_device() -> None:
    host = {"fixed_us": 4_000.0, "per_sequence_us": 0.0}
    added = cost("roofline", host=host | {"overlap": False})
    hidden = cost("roofline", host=host | {"overlap": True})
    assert step_ms(added, plan([100])) - step_ms(hidden, plan([100])) == pytest.approx(4.0, abs=1e-5)


def test_paper_profile_meets_the_batch_1_ends_of_figure_12() -> None:
    # the fit leaves 8 % at the first of them (analysis/fit_paper_a100.py)
    sharded = cost("paper_a100", "opt-175b", "a100-80gb", 8)
    ends = [step_ms(profile, plan([400])) for profile in (PAPER, SHARDED, sharded)]
    assert ends == pytest.approx([24, 38, 56], rel=0.1)


def test_prefill_plans_do_not_repeat() -> None:
    with pytest.raises(InvariantError, match="INV-fast-forward: step 0 has prefill rows and 2 repeats"):
        PAPER.decode_run(plan([5], [(4, 4)]), 2)


@pytest.mark.parametrize("value", [0.0, 1.1, -0.5, float("nan"), True, "0.8", None])
def test_bad_efficiency(value: object) -> None:
    with pytest.raises(ConfigError, match=r"cost\.efficiency\.gemm_memory="):
        Efficiency(value, 0.6, 0.5, 0.7)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1.0, float("inf"), True, "3"])
def test_bad_overheads(value: object) -> None:
    for field in ("fixed_us", "per_sequence_us"):
        with pytest.raises(ConfigError, match=rf"cost\.host\.{field}="):
            Host(**{"fixed_us": 1.0, "per_sequence_us": 1.0, "overlap": True} | {field: value})  # type: ignore[arg-type]
    for field in ("launch_us_per_layer", "allreduce_hop_us"):
        factory = load("cost", "roofline")
        with pytest.raises(ConfigError, match=rf"cost\.{field}="):
            factory(model=load("model", "opt-125m"), hardware=load("hardware", "h100"), **{field: value})


@pytest.mark.parametrize("value", [1, "yes", None])
def test_bad_overlap(value: object) -> None:
    with pytest.raises(ConfigError, match=r"cost\.host\.overlap="):
        Host(1.0, 1.0, value)  # type: ignore[arg-type]
