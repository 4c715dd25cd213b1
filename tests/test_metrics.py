"""The summary of a run: hand-computed cases, windows, and a naive nanosecond-by-nanosecond integral."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.errors import ConfigError, InvariantError
from kvsim.latency import NO_SLO, SLO, RequestColumns, Stalls
from kvsim.metrics import MEMORY_CLASSES, StepTotals, is_saturated, summarize
from kvsim.plan import IntArray
from kvsim.request import Status

S = 10**9
POOL = 100
STATISTICS = ("mean", "median", "std", "p90", "p99")
NAMES = [
    "completed",
    "failed",
    "rejected",
    "unfinished",
    "saturated",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "output_throughput",
    "request_goodput",
    *(f"{statistic}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el") for statistic in STATISTICS),
    "mean_normalized_latency",
    "mean_batch_size",
    "mean_batch_requests",
    "kv_token_state_frac",
    "kv_reserved_frac",
    "kv_internal_frac",
    "kv_external_frac",
    "num_preemptions",
    "recomputed_tokens",
    "steps",
]


def ints(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


NO_STALLS = Stalls(ints(), ints(), ints())


def steps(start: list[int], duration: list[int], pool: int = POOL, **given: list[int]) -> dict[str, IntArray]:
    """A chunk of steps; unnamed columns are 0, and what the named classes leave of the pool is free."""
    names = ("num_seqs", "num_emitted", *MEMORY_CLASSES)
    chunk = {name: ints(*given.get(name, [0] * len(start))) for name in names}
    if "free_usable" not in given:
        chunk["free_usable"] = pool - np.sum([chunk[name] for name in MEMORY_CLASSES], axis=0)
    return {"start_ns": ints(*start), "duration_ns": ints(*duration), **chunk}


def columns(count: int, **given: list[int]) -> RequestColumns:
    filled = {name: ints(*given.get(name, [0] * count)) for name in RequestColumns._fields}
    return RequestColumns(**filled)


def summary(requests: RequestColumns, totals: StepTotals, ends: list[int], **more: Any) -> dict[str, Any]:
    accepted = requests.arrival_ns[requests.state != list(Status).index(Status.REJECTED)]
    waiting = more.get("num_waiting", np.zeros(len(accepted), dtype=np.int64))
    return summarize(
        requests, totals, ints(*ends), more.get("stalls", NO_STALLS), accepted, waiting, more.get("slo", NO_SLO)
    )


def example(warmup_ns: int = 0, end_ns: int | None = None, slo: SLO = NO_SLO) -> dict[str, Any]:
    """Two requests of 3 and 2 tokens; idle from 3 s to 4 s."""
    totals = StepTotals(warmup_ns, end_ns, POOL)
    first = steps([0, 1 * S], [1 * S, 1 * S], num_seqs=[1, 1], num_emitted=[1, 1], token_state=[10, 11])
    rest = steps(
        [2 * S, 4 * S, 6 * S],
        [1 * S, 2 * S, 2 * S],
        num_seqs=[1, 1, 1],
        num_emitted=[1, 1, 1],
        token_state=[12, 20, 21],
        reserved=[0, 5, 4],
        internal=[8, 10, 10],
    )
    totals.add(first)
    totals.add(rest)
    requests = columns(
        2,
        request_id=[0, 1],
        arrival_ns=[0, 4 * S],
        num_prompt_tokens=[10, 20],
        num_output_tokens=[3, 2],
        first_token_ns=[1 * S, 6 * S],
        finished_ns=[3 * S, 8 * S],
        first_step=[0, 3],
        last_step=[2, 4],
        num_preemptions=[1, 0],
        recomputed_tokens=[11, 0],
    )
    return summary(requests, totals, [1 * S, 2 * S, 3 * S, 6 * S, 8 * S], slo=slo)


def test_names_are_exactly_the_documented_ones() -> None:
    assert list(example()) == NAMES


def test_a_run_by_hand() -> None:
    found = example()
    assert found["completed"] == 2
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (30, 5)
    assert found["request_throughput"] == 2 / 8
    assert found["output_throughput"] == 5 / 8
    assert found["mean_batch_size"] == found["mean_batch_requests"] == 7 / 8, "idle second counts"
    assert found["kv_token_state_frac"] == (10 + 11 + 12 + 2 * 20 + 2 * 21) / 800
    assert found["kv_reserved_frac"] == (2 * 5 + 2 * 4) / 800
    assert found["kv_internal_frac"] == (8 + 20 + 20) / 800
    assert found["kv_external_frac"] == (800 - 115 - 18 - 48) / 800
    assert (found["mean_ttft_ms"], found["std_ttft_ms"], found["p90_ttft_ms"]) == (1500, 500, 1900)
    assert (found["mean_tpot_ms"], found["mean_itl_ms"]) == (1500, pytest.approx(4000 / 3))
    assert (found["median_itl_ms"], found["mean_e2el_ms"]) == (1000, 3500)
    assert found["mean_normalized_latency"] == (1 + 2) / 2
    assert (found["num_preemptions"], found["recomputed_tokens"], found["steps"]) == (1, 11, 5)


def test_warmup_leaves_out_earlier_time_and_earlier_arrivals() -> None:
    found = example(warmup_ns=5 * S // 2)
    assert (found["completed"], found["total_output_tokens"], found["num_preemptions"]) == (1, 2, 0)
    assert (found["mean_ttft_ms"], found["mean_itl_ms"]) == (2000, 2000)
    assert found["request_throughput"] == 2 / 5.5, "both completed in the window"
    assert found["output_throughput"] == 3 / 5.5
    assert found["kv_token_state_frac"] == pytest.approx((6 + 40 + 42) / 550), "the third step is split"
    assert found["steps"] == 3


def test_goodput_is_of_requests_that_keep_every_limit() -> None:
    assert example()["request_goodput"] is None
    assert example(slo=SLO(ttft_ms=2000))["request_goodput"] == 2 / 8
    assert example(slo=SLO(ttft_ms=2000, tpot_ms=1000))["request_goodput"] == 1 / 8
    assert example(slo=SLO(e2el_ms=1))["request_goodput"] == 0
    assert example(warmup_ns=5 * S // 2, slo=SLO(ttft_ms=2000))["request_goodput"] == 1 / 5.5, "one came before"
    assert example(end_ns=16 * S, slo=SLO(ttft_ms=2000))["request_goodput"] == 2 / 16
    assert example(warmup_ns=9 * S, slo=SLO(ttft_ms=2000))["request_goodput"] is None


def test_a_fixed_end_splits_its_step_and_counts_idle_time_after_the_last() -> None:
    assert example(end_ns=7 * S)["mean_batch_size"] == 6 / 7
    assert example(end_ns=7 * S)["output_throughput"] == 4 / 7
    assert example(end_ns=16 * S)["mean_batch_size"] == 7 / 16


def test_warmup_beyond_the_last_completion_measures_nothing() -> None:
    found = example(warmup_ns=9 * S)
    assert found["completed"] == found["steps"] == 0
    assert all(found[name] is None for name in NAMES if "mean" in name or "frac" in name or "throughput" in name)


def test_no_completed_request_gives_nulls_and_no_warnings() -> None:
    requests = columns(2, request_id=[0, 1], state=[1, 1], num_output_tokens=[5, 5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = summary(requests, StepTotals(0, None, POOL), [])
    assert found["rejected"] == 2
    assert {found[name] for name in NAMES if name.endswith(("_ms", "throughput", "_frac"))} == {None}
    assert found["saturated"] is None
    json.dumps(found, allow_nan=False)


def test_an_empty_window_of_fixed_length_has_zero_throughput() -> None:
    found = summary(columns(0), StepTotals(0, 4 * S, POOL), [])
    assert (found["request_throughput"], found["mean_batch_size"], found["kv_external_frac"]) == (0, 0, 1)
    assert found["mean_ttft_ms"] is None


def test_every_state_is_counted() -> None:
    totals = StepTotals(0, 10 * S, POOL)
    totals.add(steps([0], [S], num_emitted=[2]))
    requests = columns(
        5,
        request_id=[0, 1, 2, 3, 4],
        state=[0, 1, 2, 3, 3],
        num_output_tokens=[1, 9, 9, 9, 9],
        first_token_ns=[S, -1, -1, S, -1],
        finished_ns=[S, -1, -1, -1, -1],
    )
    found = summary(requests, totals, [S])
    assert [found[str(status)] for status in Status] == [1, 1, 1, 2]
    assert (found["total_output_tokens"], found["output_throughput"]) == (1, 0.2)


@pytest.mark.parametrize(("warmup", "end"), [(-1, None), (S, S), (2 * S, S)])
def test_a_window_without_time_is_refused(warmup: int, end: int | None) -> None:
    with pytest.raises(ConfigError, match=r"warmup=\S+ s leaves nothing"):
        StepTotals(warmup, end, POOL)


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(ConfigError, match="pool of 0 tokens"):
        StepTotals(0, None, 0)


@pytest.mark.parametrize("change", [1, -1])
def test_inv_blocks_names_the_step(change: int) -> None:
    totals = StepTotals(0, None, POOL)
    totals.add(steps([0, 1], [1, 1]))
    chunk = steps([2, 3], [1, 1], token_state=[40, 41])
    chunk["cached"][1] += change
    with pytest.raises(InvariantError, match=r"INV-blocks: step 3: token_state 41, .* pool's 100"):
        totals.add(chunk)


def test_a_negative_class_breaks_inv_blocks() -> None:
    with pytest.raises(InvariantError, match="INV-blocks"):
        StepTotals(0, None, POOL).add(steps([0], [1], holes=[-1]))


@pytest.mark.parametrize(
    ("start", "duration", "step"), [([0, 5], [5, 0], 2), ([0, 4], [5, 1], 2), ([-1, 9], [5, 1], 1)]
)
def test_inv_clock(start: list[int], duration: list[int], step: int) -> None:
    totals = StepTotals(0, None, POOL)
    totals.add(steps([0], [10]))
    with pytest.raises(InvariantError, match=f"INV-clock: step {step} "):
        totals.add(steps([10 + s for s in start], duration))


@pytest.mark.parametrize("emitted", [4, 6], ids=["too few", "some twice"])
def test_inv_tokens(emitted: int) -> None:
    totals = StepTotals(0, None, POOL)
    totals.add(steps([0], [S], num_emitted=[emitted]))
    requests = columns(1, num_output_tokens=[5], first_token_ns=[S], finished_ns=[S])
    with pytest.raises(InvariantError, match=f"INV-tokens: {emitted} tokens emitted, 5 asked for"):
        summary(requests, totals, [S])


def test_a_drained_run_ends_with_its_last_completion() -> None:
    totals = StepTotals(0, None, POOL)
    totals.add(steps([0, S], [S, S], num_emitted=[1, 0]))
    requests = columns(1, num_output_tokens=[1], first_token_ns=[S], finished_ns=[S])
    with pytest.raises(InvariantError, match="INV-clock: the last step ends at 2000000000 ns"):
        summary(requests, totals, [S, 2 * S])


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 60), st.integers(0, 40)), max_size=10),
    st.integers(0, 20),
    st.integers(1, 40),
    st.integers(1, 4),
)
def test_integrals_equal_a_sum_over_every_nanosecond(
    rows: list[tuple[int, int, int, int]], warmup: int, length: int, chunk_rows: int
) -> None:
    totals = StepTotals(warmup, warmup + length, POOL)
    clock, naive, emitted = 0, [0, 0], 0
    for at in range(0, len(rows), chunk_rows):
        start, duration, tokens, reserved = [], [], [], []
        for idle, lasts, held, kept in rows[at : at + chunk_rows]:
            clock += idle
            start.append(clock)
            duration.append(lasts)
            tokens.append(held)
            reserved.append(kept)
            inside = sum(warmup <= t < warmup + length for t in range(clock, clock + lasts))
            naive[0] += inside * held
            naive[1] += inside * kept
            clock += lasts
            emitted += held if warmup <= clock <= warmup + length else 0
        totals.add(steps(start, duration, token_state=tokens, reserved=reserved, num_emitted=tokens))
    assert [totals.integral("token_state"), totals.integral("reserved")] == naive
    assert totals.emitted_tokens == emitted
    assert (totals.run_steps, totals.run_tokens) == (len(rows), sum(row[2] for row in rows))


def test_integrals_are_exact_beyond_64_bits() -> None:
    pool, lasts = 2**40 + 1, 2**41 + 3
    totals = StepTotals(0, None, pool)
    totals.add(steps([0, lasts], [lasts, lasts], pool=pool, token_state=[pool, pool - 2]))
    assert totals.integral("token_state") == lasts * (2 * pool - 2)


def backlog(per_second: float, arrivals: int, jump: int = 0) -> bool | None:
    at = np.arange(arrivals, dtype=np.int64) * (S // 10)
    return is_saturated(at, (at / S * per_second).astype(np.int64) + jump)


def test_saturation_needs_both_a_slope_and_a_queue() -> None:
    assert backlog(1.0, 200) is True, "10 requests/s, backlog +1/s, 19 waiting at the end"
    assert backlog(0.4, 400) is False, "slope below 5 % of the rate"
    assert backlog(0.0, 200, jump=150) is False, "a long queue that does not grow"
    assert backlog(0.8, 100) is False, "7 waiting at the end are not many"
    assert backlog(0.6, 10_000) is True


def test_the_rate_is_arrivals_by_their_span() -> None:
    waiting = np.full(40, 20, dtype=np.int64)
    waiting[[39, 35, 29]] += [3, 1, 1]
    # slope 33.5 / 665 = 0.0504 a second, between 5 % of 39 / 39 and of 40 / 39 requests/s
    assert is_saturated(np.arange(40) * S, waiting) is False
    waiting[38] += 1
    assert is_saturated(np.arange(40) * S, waiting) is True


def test_saturation_is_undefined_without_a_span() -> None:
    assert is_saturated(ints(), ints()) is None
    assert is_saturated(ints(5), ints(1)) is None
    assert is_saturated(ints(5, 5, 5), ints(1, 2, 3)) is None
    assert is_saturated(ints(0, 5, 5, 5), ints(1, 2, 3, 4)) is None


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 60)), min_size=3, max_size=40))
def test_the_slope_is_that_of_polyfit(rows: list[tuple[int, int]]) -> None:
    at, waiting = np.cumsum([gap for gap, _ in rows]), ints(*(number for _, number in rows))
    half = len(rows) // 2
    seconds = (at[half:] - at[half]) / S
    slope = np.polyfit(seconds / seconds[-1], waiting[half:], 1)[0] / seconds[-1]
    limit = 0.05 * len(rows) / ((at[-1] - at[0]) / S)
    if abs(slope - limit) > 1e-9 * abs(limit):
        assert is_saturated(at, waiting) == (slope > limit and waiting[-1] > 10)


def test_saturation_looks_at_arrivals_after_the_warmup() -> None:
    totals = StepTotals(2, 100, POOL)
    requests = columns(4, arrival_ns=[0, 1, 3, 3], state=[3, 3, 3, 3])
    assert summary(requests, totals, [], num_waiting=ints(0, 99, 99, 99))["saturated"] is None
