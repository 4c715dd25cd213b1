"""Workloads of a length model and an arrival process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.errors import ConfigError
from kvsim.protocols import Arrival, Workload
from kvsim.workload.generated import BLOCK, GeneratedWorkload
from kvsim.workload.lengths import BinnedLengths, SyntheticLengths

Drain = Callable[[Workload], list[Arrival]]

LENGTHS = SyntheticLengths("uniform", 100, 50)


def make(**options: Any) -> GeneratedWorkload:
    return GeneratedWorkload(LENGTHS, **{"rate": 2.0, **options})


def columns(arrivals: list[Arrival]) -> tuple[list[int], list[tuple[int, int]]]:
    """Instants, and lengths."""
    return [a.request.arrival_ns for a in arrivals], [
        (a.request.num_prompt_tokens, a.num_output_tokens) for a in arrivals
    ]


def test_default_is_a_thousand_requests(drain: Drain) -> None:
    arrivals = drain(make())
    assert [a.request.request_id for a in arrivals] == list(range(1000))


def test_values_are_plain_ints(drain: Drain) -> None:
    arrival = drain(make(num_requests=1))[0]
    request = arrival.request
    values = (request.request_id, request.arrival_ns, request.num_prompt_tokens, arrival.num_output_tokens)
    assert {type(value) for value in values} == {int}


@settings(max_examples=40, deadline=None)
@given(
    process=st.sampled_from(("poisson", "gamma", "constant")),
    rate=st.floats(0.5, 500.0),
    duration=st.floats(0.1, 30.0),
    num_requests=st.none() | st.integers(1, 9000),
    seed=st.integers(0, 2**63 - 1),
)
def test_arrivals_are_sorted_within_duration_and_count(
    process: str, rate: float, duration: float, num_requests: int | None, seed: int
) -> None:
    options = {"arrivals": process, "rate": rate, "seed": seed}
    arrivals = list(iter(make(**options, duration=duration, num_requests=num_requests).next_arrival, None))
    instants, _ = columns(arrivals)
    assert instants == sorted(instants)
    assert all(0 <= t < round(duration * 1e9) for t in instants)
    assert [a.request.request_id for a in arrivals] == list(range(len(arrivals)))
    if num_requests is None or len(arrivals) < num_requests:
        more = list(iter(make(**options, num_requests=len(arrivals) + 1).next_arrival, None))
        assert more[:-1] == arrivals and more[-1].request.arrival_ns >= round(duration * 1e9)
    else:
        assert len(arrivals) == num_requests


def test_an_arrival_at_the_duration_is_out(drain: Drain) -> None:
    assert columns(drain(make(arrivals="constant", rate=1.0, duration=3.0)))[0] == [10**9, 2 * 10**9]


@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_block_borders_do_not_show(drain: Drain, count: int) -> None:
    assert drain(make(num_requests=count)) == drain(make(num_requests=3 * BLOCK))[:count]


def test_same_seed_same_requests_other_seed_others(drain: Drain) -> None:
    assert drain(make(seed=5)) == drain(make(seed=5)) != drain(make(seed=6))


def test_rate_and_process_leave_lengths_alone_and_lengths_leave_arrivals_alone(drain: Drain) -> None:
    instants, lengths = columns(drain(make()))
    for options in ({"rate": 7.0}, {"arrivals": "gamma"}, {"arrivals": "all_at_once", "rate": None}):
        assert columns(drain(make(**{"num_requests": 1000, **options})))[1] == lengths
    assert columns(drain(GeneratedWorkload(BinnedLengths("sharegpt"), rate=2.0)))[0] == instants


def test_all_at_once(drain: Drain) -> None:
    assert columns(drain(make(arrivals="all_at_once", rate=None, num_requests=7)))[0] == [0] * 7
    assert len(drain(make(arrivals="all_at_once", rate=None))) == 1000
    with pytest.raises(ConfigError, match="does not end.*num_requests=1000"):
        make(arrivals="all_at_once", rate=None, duration=10.0)


def test_after_the_last_comes_none_for_ever() -> None:
    workload = make(num_requests=1)
    assert workload.next_arrival() is not None
    assert [workload.next_arrival() for _ in range(3)] == [None] * 3


def test_no_arrival_in_the_duration(drain: Drain) -> None:
    assert drain(make(arrivals="constant", rate=1.0, duration=0.5)) == []


def test_a_length_model_needs_a_rate() -> None:
    with pytest.raises(ConfigError, match="rate is not set"):
        make(rate=None)


def test_a_length_model_has_no_timestamps() -> None:
    with pytest.raises(ConfigError, match="workload=trace workload.path=FILE"):
        make(arrivals="trace")


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "60", True, 1e12])
def test_bad_duration_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="^duration="):
        make(duration=value)


@pytest.mark.parametrize("value", [0, -1, 1.5, float("nan"), "60", True, 10**12])
def test_bad_num_requests_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="^num_requests="):
        make(num_requests=value)


def test_a_run_of_centuries_is_refused() -> None:
    with pytest.raises(ConfigError, match="lower num_requests or give a duration"):
        make(rate=1e-6, num_requests=10**6)
