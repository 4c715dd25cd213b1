"""Latencies: hand-computed cases, and the counted forms against the written-out ones."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.errors import InvariantError
from kvsim.latency import SLO, RequestColumns, Sample, Stalls, inter_token_gaps, measure
from kvsim.plan import IntArray
from tests.harness import every_system, setup, simulate
from tests.reference.records import Job

MS = 10**6


def ints(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


NO_STALLS = Stalls(ints(), ints(), ints())


def columns(count: int, **given: list[int]) -> RequestColumns:
    """`count` completed requests, all fields 0 unless given."""
    filled = {name: ints(*given.get(name, [0] * count)) for name in RequestColumns._fields}
    filled["request_id"] = np.arange(count)
    return RequestColumns(**filled)


def everyone(requests: RequestColumns) -> Any:
    return np.ones(len(requests.request_id), dtype=np.bool_)


def test_two_requests_by_hand() -> None:
    # steps end at 10, 30, 60, 100 ms; request 0 emits in 0..3, request 1 only in step 1
    requests = columns(
        2,
        arrival_ns=[0, 5 * MS],
        num_output_tokens=[4, 1],
        first_token_ns=[10 * MS, 30 * MS],
        finished_ns=[100 * MS, 30 * MS],
        first_step=[0, 1],
        last_step=[3, 1],
    )
    found = measure(requests, everyone(requests), ints(10, 30, 60, 100) * MS, NO_STALLS)
    assert found.ttft_ms.values.tolist() == [10, 25]
    assert found.e2el_ms.values.tolist() == [25, 100]
    assert found.tpot_ms.values.tolist() == [30], "(100 - 10) / 3; the one-token answer has none"
    assert found.itl_ms.values.tolist() == [20, 30, 40]
    assert found.itl_ms.counts.tolist() == [1, 1, 1]
    assert found.normalized_s.values.tolist() == [0.025, 0.025]


def test_a_static_batch_emits_before_it_delivers() -> None:
    # both are delivered with the batch at 100 ms; request 0 emitted in steps 0 and 1, request 1 in 0..3
    requests = columns(
        2,
        num_output_tokens=[2, 4],
        first_token_ns=[10 * MS, 10 * MS],
        finished_ns=[100 * MS, 100 * MS],
        last_step=[1, 3],
    )
    found = measure(requests, everyone(requests), ints(10, 30, 60, 100) * MS, NO_STALLS)
    assert found.tpot_ms.values.tolist() == [20, 30], "emission to emission"
    assert found.itl_ms.values.tolist() == [20, 30, 40]
    assert found.e2el_ms.values.tolist() == [100, 100]
    assert found.normalized_s.values.tolist() == [0.025, 0.05]


@every_system
def test_what_a_run_calls_tpot_and_itl_are_the_gaps_between_its_emissions(system: str) -> None:
    jobs = [Job(700 * row, 3 + row % 20, 1 + 7 * row % 30) for row in range(40)]
    log = simulate(setup(system, num_blocks=32, max_num_seqs=5), jobs)
    at: dict[int, list[int]] = {request_id: [] for request_id in log.requests}
    for step in log.steps:
        for request_id in step.emitted:
            at[request_id].append(step.end_ns)
    early = [row for row, ends in at.items() if ends[-1] < (log.requests[row].finished_ns or 0)]
    assert bool(early) == (system == "fastertransformer")
    tpot = [(ends[-1] - ends[0]) / (len(ends) - 1) / MS for ends in at.values() if len(ends) > 1]
    gaps = [(b - a) / MS for ends in at.values() for a, b in pairwise(ends)]
    stay = [((outcome.finished_ns or 0) - jobs[row].arrival) / MS for row, outcome in log.requests.items()]
    for name, expected in (("tpot", tpot), ("itl", gaps), ("e2el", stay)):
        assert log.summary[f"mean_{name}_ms"] == pytest.approx(np.mean(expected))
        assert log.summary[f"p99_{name}_ms"] == pytest.approx(np.percentile(expected, 99))


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        (SLO(), 3),
        (SLO(ttft_ms=10), 2),
        (SLO(ttft_ms=9.999), 1),
        (SLO(tpot_ms=20), 2),
        (SLO(tpot_ms=0.1), 1),
        (SLO(e2el_ms=100), 3),
        (SLO(e2el_ms=99.9), 1),
        (SLO(ttft_ms=10, tpot_ms=20), 1),
        (SLO(ttft_ms=10, tpot_ms=30, e2el_ms=50), 0),
    ],
)
def test_good_requests_keep_every_limit(slo: SLO, good: int) -> None:
    # TTFT 10, 1, 30; TPOT 20, 33, none; E2EL 100, 100, 30 ms
    requests = columns(
        3,
        arrival_ns=[0, 0, 0],
        num_output_tokens=[2, 4, 1],
        first_token_ns=[10 * MS, 1 * MS, 30 * MS],
        finished_ns=[100 * MS, 100 * MS, 30 * MS],
        first_step=[1, 0, 2],
        last_step=[2, 3, 2],
    )
    ends = ints(1, 10, 30, 100) * MS
    assert measure(requests, everyone(requests), ends, NO_STALLS, slo).num_good == good


def test_preemption_is_one_long_gap() -> None:
    # emits in steps 0, 1, then 4, 5: preempted after step 1, recomputed in step 4
    requests = columns(
        1, num_output_tokens=[4], first_token_ns=[MS], finished_ns=[32 * MS], first_step=[0], last_step=[5]
    )
    ends = ints(1, 2, 4, 8, 16, 32) * MS
    found = measure(requests, everyone(requests), ends, Stalls(ints(0), ints(1), ints(4)))
    assert found.itl_ms.values.tolist() == [1, 14, 16]
    assert found.tpot_ms.values.tolist() == pytest.approx([31 / 3])
    assert found.itl_ms.mean() == found.tpot_ms.mean()


def test_requests_not_chosen_leave_no_gaps() -> None:
    requests = columns(2, num_output_tokens=[2, 3], first_step=[0, 0], last_step=[1, 3])
    stalls = Stalls(ints(1), ints(1), ints(3))
    gaps = inter_token_gaps(requests, np.array([True, False]), ints(1, 2, 3, 4) * MS, stalls)
    assert (gaps.values.tolist(), gaps.counts.tolist()) == ([1], [1])


@pytest.mark.parametrize(
    ("first_step", "last_step", "stalls"),
    [(0, 3, NO_STALLS), (0, 2, Stalls(ints(0), ints(0), ints(2))), (2, 0, NO_STALLS)],
    ids=["one gap too many", "one gap too few", "backwards"],
)
def test_gaps_that_contradict_the_tokens_stop_the_run(first_step: int, last_step: int, stalls: Stalls) -> None:
    requests = columns(1, num_output_tokens=[3], first_step=[first_step], last_step=[last_step])
    with pytest.raises(InvariantError, match="INV-tokens"):
        inter_token_gaps(requests, everyone(requests), ints(1, 2, 3, 4), stalls)


@pytest.mark.parametrize(("first", "finished"), [(5, 9), (-1, 9), (8, 7)])
def test_a_token_out_of_order_stops_the_run(first: int, finished: int) -> None:
    requests = columns(1, arrival_ns=[5], num_output_tokens=[1], first_token_ns=[first], finished_ns=[finished])
    with pytest.raises(InvariantError, match=r"INV-causality: requests \[0\]"):
        measure(requests, everyone(requests), ints(9), NO_STALLS)


@st.composite
def emissions(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    """Ends of steps, and the steps in which each request emits a token."""
    durations = draw(st.lists(st.integers(1, 10**9), min_size=1, max_size=12))
    steps = st.lists(st.sampled_from(range(len(durations))), min_size=1, unique=True).map(sorted)
    return np.cumsum(durations).tolist(), draw(st.lists(steps, max_size=8))


@given(emissions(), st.integers(0, 10**9))
def test_the_gaps_of_a_request_add_up_to_its_time_per_token(run: tuple[list[int], list[list[int]]], held: int) -> None:
    ends, emitted = run
    for steps in emitted:
        stalls = [(0, a, b) for a, b in pairwise(steps) if b > a + 1]
        requests = columns(
            1,
            num_output_tokens=[len(steps)],
            first_token_ns=[ends[steps[0]]],
            finished_ns=[ends[steps[-1]] + held],
            first_step=[steps[0]],
            last_step=[steps[-1]],
        )
        columns_of_stalls = Stalls(*np.array(stalls, dtype=np.int64).reshape(-1, 3).T)
        found = measure(requests, everyone(requests), ints(*ends), columns_of_stalls)
        gaps = float((found.itl_ms.values * found.itl_ms.counts).sum())
        assert gaps == pytest.approx(float(found.tpot_ms.values.sum()) * (len(steps) - 1))


@given(emissions(), st.randoms())
def test_counted_gaps_equal_listed_gaps(run: tuple[list[int], list[list[int]]], random: Any) -> None:
    ends, emitted = run
    chosen = np.array([random.random() < 0.7 for _ in emitted], dtype=np.bool_)
    stalls = [(row, a, b) for row, s in enumerate(emitted) for a, b in pairwise(s) if b > a + 1]
    requests = columns(
        len(emitted),
        num_output_tokens=[len(s) for s in emitted],
        first_token_ns=[ends[s[0]] for s in emitted],
        finished_ns=[ends[s[-1]] for s in emitted],
        first_step=[s[0] for s in emitted],
        last_step=[s[-1] for s in emitted],
    )
    stall_columns = Stalls(*np.array(stalls, dtype=np.int64).reshape(-1, 3).T)
    found = measure(requests, chosen, ints(*ends), stall_columns).itl_ms
    taken = [s for s, yes in zip(emitted, chosen, strict=True) if yes]
    listed = [ends[b] - ends[a] for s in taken for a, b in pairwise(s)]
    assert np.repeat(found.values, found.counts).tolist() == sorted(gap / MS for gap in listed)


samples = st.lists(st.tuples(st.floats(0, 1e7) | st.sampled_from([0.1, 0.3, 7.0]), st.integers(1, 50)), min_size=1)


@given(samples, st.floats(0, 100) | st.sampled_from([0, 50, 90, 99, 100]))
def test_statistics_equal_numpy_on_the_written_out_multiset(members: list[tuple[float, int]], q: float) -> None:
    values, counts = np.array([value for value, _ in members]), ints(*(count for _, count in members))
    sample = Sample.of(values, counts)
    written_out = np.repeat(values, counts)
    assert sample.percentile(q) == np.percentile(written_out, q)
    assert sample.mean() == pytest.approx(written_out.mean(), rel=1e-12)
    assert sample.std() == pytest.approx(written_out.std(), rel=1e-9, abs=1e-6)


@given(st.lists(st.floats(0, 1e7), min_size=1), st.sampled_from([50, 90, 99]))
def test_statistics_of_single_values(values: list[float], q: float) -> None:
    assert Sample.of(np.array(values)).percentile(q) == np.percentile(values, q)


def test_members_that_do_not_occur_do_not_count() -> None:
    sample = Sample.of(np.array([1.0, 5.0, 9.0]), ints(1, 0, 1))
    assert (sample.mean(), sample.std(), sample.percentile(50), sample.percentile(100)) == (5, 4, 5, 9)


def test_an_empty_sample_has_no_statistics() -> None:
    empty = Sample.of(np.empty(0))
    assert (empty.size, empty.mean(), empty.std(), empty.percentile(99)) == (0, None, None, None)
