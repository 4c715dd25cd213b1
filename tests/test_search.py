"""Bracketing and bisection over a noisy monotone answer, and interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.errors import ConfigError
from kvsim.search import find_threshold, log_linear

LIMITS = (0.01, 1000.0)


def step_at(threshold: float) -> Callable[[float], bool]:
    """Beyond from `threshold` on."""
    return lambda x: x >= threshold


@given(threshold=st.floats(0.02, 900), start=st.floats(0.01, 1000), growth=st.floats(1.05, 8))
def test_the_bracket_encloses_the_threshold(threshold: float, start: float, growth: float) -> None:
    bracket = find_threshold(step_at(threshold), start, LIMITS, growth=growth, width=0.02, max_evaluations=500)
    assert bracket.low is not None and bracket.high is not None
    assert bracket.low < threshold <= bracket.high
    assert bracket.high / bracket.low - 1 <= 0.02
    assert all(beyond == (x >= threshold) for x, beyond in bracket.answers.items())


@given(threshold=st.integers(1, 5000), start=st.floats(1, 5000), growth=st.floats(1.01, 8))
def test_whole_numbers_are_found_exactly(threshold: int, start: float, growth: float) -> None:
    bracket = find_threshold(
        step_at(threshold), start, (1, 5000), growth=growth, width=1e-6, whole=True, max_evaluations=5000
    )
    assert bracket.high == threshold
    assert bracket.low == (None if threshold == 1 else threshold - 1)
    assert all(x == int(x) for x in bracket.answers)


def test_no_candidate_is_asked_twice() -> None:
    asked: list[float] = []

    def is_beyond(x: float) -> bool:
        asked.append(x)
        return x > 37

    bracket = find_threshold(is_beyond, 3, (1, 100), whole=True, width=1e-6)
    assert len(asked) == len(set(asked))
    assert asked == list(bracket.answers)


def test_it_grows_from_the_start_then_halves_in_log_space() -> None:
    bracket = find_threshold(step_at(3.5), 1.0, LIMITS, growth=2.0, width=0.3)
    assert list(bracket.answers) == pytest.approx([1.0, 2.0, 4.0, math.sqrt(8), math.sqrt(4 * math.sqrt(8))])
    assert (bracket.low, bracket.high) == pytest.approx((math.sqrt(4 * math.sqrt(8)), 4.0))


def test_a_start_beyond_the_threshold_shrinks() -> None:
    bracket = find_threshold(step_at(0.3), 1.0, LIMITS, growth=2.0, width=1.0)
    assert list(bracket.answers.items()) == [(1.0, True), (0.5, True), (0.25, False)]


def test_never_crossed_upwards() -> None:
    bracket = find_threshold(lambda _: False, 1.0, (0.5, 10.0))
    assert (bracket.low, bracket.high) == (10.0, None)


def test_never_crossed_downwards() -> None:
    bracket = find_threshold(lambda _: True, 1.0, (0.5, 10.0))
    assert (bracket.low, bracket.high) == (None, 0.5)


def test_the_bound_on_evaluations_holds_and_leaves_what_is_known() -> None:
    short = find_threshold(step_at(100.0), 1.0, LIMITS, growth=2.0, max_evaluations=3)
    assert (short.low, short.high, len(short.answers)) == (4.0, None, 3)
    wide = find_threshold(step_at(3.0), 1.0, LIMITS, growth=2.0, max_evaluations=4)
    assert len(wide.answers) == 4
    assert wide.low is not None and wide.high is not None
    assert wide.high / wide.low - 1 > 0.05


def test_a_start_outside_the_limits_is_moved_to_the_nearest() -> None:
    assert next(iter(find_threshold(step_at(5.0), 99.0, (1.0, 10.0)).answers)) == 10.0
    assert next(iter(find_threshold(step_at(5.0), 0.1, (1.0, 10.0)).answers)) == 1.0


def test_limits_that_coincide() -> None:
    assert find_threshold(step_at(5.0), 3.0, (3.0, 3.0)).answers == {3.0: False}


def noisy_latency(seed: int) -> Callable[[float], bool]:
    """A latency curve with a knee near 2, as from few seeds: noise of 5 %, the same for the same rate."""

    def is_beyond(rate: float) -> bool:
        noise = np.random.default_rng([seed, round(rate * 1e6)]).normal(0, 0.05)
        return 0.03 * math.exp(0.5 * rate**2 + noise) > 0.2

    return is_beyond


def test_noise_moves_the_threshold_by_little() -> None:
    true = math.sqrt(2 * math.log(0.2 / 0.03))
    middles = []
    for seed in range(200):
        bracket = find_threshold(noisy_latency(seed), 1.0, LIMITS, width=0.02)
        assert bracket.low is not None and bracket.high is not None
        assert not bracket.answers[bracket.low] and bracket.answers[bracket.high]
        middles.append(math.sqrt(bracket.low * bracket.high))
    assert np.mean(middles) == pytest.approx(true, rel=0.005)
    # the log-latency noise over the slope of the curve, 0.05 / (true * true), and half a bracket
    assert np.abs(np.array(middles) / true - 1).max() < 4 * 0.05 / true**2 + 0.01


def test_it_is_deterministic() -> None:
    assert find_threshold(noisy_latency(1), 1.0, LIMITS) == find_threshold(noisy_latency(1), 1.0, LIMITS)


def test_common_random_numbers_keep_a_comparison_exact() -> None:
    # two systems, one 10 % better, under the same noise: the ratio of their thresholds comes out right
    def threshold(scale: float, seed: int) -> float:
        shift = np.random.default_rng(seed).normal(0, 0.2)
        bracket = find_threshold(lambda rate: (rate / scale) ** 3 * math.exp(shift) > 2, 1.0, LIMITS, width=1e-4)
        assert bracket.high is not None
        return bracket.high

    for seed in range(5):
        assert threshold(1.1, seed) / threshold(1.0, seed) == pytest.approx(1.1, rel=2e-4)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"limits": (0.0, 1.0)}, "above 0"),
        ({"limits": (2.0, 1.0)}, "ascending"),
        ({"limits": (1.0, math.inf)}, "finite"),
        ({"limits": (math.nan, 1.0)}, "finite"),
        ({"limits": (1.2, 1.8), "whole": True}, "no whole number"),
        ({"start": 0.0}, "search start 0.0"),
        ({"start": math.nan}, "search start nan"),
        ({"growth": 1.0}, "search growth 1.0"),
        ({"width": 0.0}, "search width 0.0"),
        ({"max_evaluations": 0}, "search max_evaluations 0"),
    ],
)
def test_bad_arguments(change: dict[str, Any], text: str) -> None:
    arguments: dict[str, Any] = {"is_beyond": step_at(1.0), "start": 1.0, "limits": LIMITS}
    with pytest.raises(ConfigError, match=text):
        find_threshold(**(arguments | change))


@given(x=st.floats(1.0, 2.0), slope=st.floats(0.1, 10))
def test_log_linear_is_exact_on_an_exponential(x: float, slope: float) -> None:
    def curve(at: float) -> float:
        return 0.03 * math.exp(slope * at)

    found = log_linear((1.0, curve(1.0)), (2.0, curve(2.0)), min(max(curve(x), curve(1.0)), curve(2.0)))
    assert found == pytest.approx(x, abs=1e-6)


def test_log_linear_at_its_ends_and_on_a_flat_curve() -> None:
    assert log_linear((1.0, 0.1), (2.0, 0.4), 0.1) == 1.0
    assert log_linear((1.0, 0.1), (2.0, 0.4), 0.2) == pytest.approx(1.5)
    assert log_linear((1.0, 0.1), (2.0, 0.4), 0.4) == 2.0
    assert log_linear((1.0, 0.2), (2.0, 0.2), 0.2) == 1.0


@pytest.mark.parametrize("level", [0.05, 0.5, math.nan])
def test_log_linear_outside_its_points(level: float) -> None:
    with pytest.raises(ValueError, match="does not lie between"):
        log_linear((1.0, 0.1), (2.0, 0.4), level)
