"""Arrival processes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.errors import ConfigError
from kvsim.plan import IntArray
from kvsim.streams import stream
from kvsim.workload.arrivals import PROCESSES, ArrivalProcess


def take(process: str, rate: float | None, count: int, cv: float = 1.0, seed: int = 0) -> IntArray:
    return ArrivalProcess(process, rate, cv, stream(seed, "arrivals")).take(count)


@pytest.mark.parametrize(
    ("process", "cv", "expected"), [("poisson", 1.0, 1.0), ("gamma", 2.0, 2.0), ("gamma", 0.5, 0.5)]
)
def test_gaps_have_the_mean_and_variation_asked_for(process: str, cv: float, expected: float) -> None:
    gaps = np.diff(take(process, 4.0, 200_000, cv), prepend=0)
    assert gaps.mean() == pytest.approx(0.25e9, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(expected, rel=0.02)


def test_poisson_counts_have_variance_equal_to_mean() -> None:
    counts = np.bincount(take("poisson", 5.0, 200_000) // 10**9)[:-1]
    assert counts.var() / counts.mean() == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize("process", ["poisson", "gamma"])
def test_the_first_gap_is_drawn_too(process: str) -> None:
    firsts = [int(take(process, 1.0, 1, seed=seed)[0]) for seed in range(300)]
    assert np.mean(firsts) == pytest.approx(1e9, rel=0.2)


def test_constant_arrivals_start_at_one_over_rate_and_never_drift() -> None:
    process = ArrivalProcess("constant", 3.0, 1.0, stream(0, "arrivals"))
    instants = np.concatenate([process.take(1000), process.take(1000)])
    assert instants.tolist() == [round(k * 1e9 / 3) for k in range(1, 2001)]


def test_all_at_once_is_at_zero() -> None:
    assert take("all_at_once", None, 5).tolist() == [0] * 5


@settings(deadline=None)
@given(
    process=st.sampled_from(PROCESSES[:3]),
    rate=st.floats(1e-6, 1e6),
    cv=st.floats(1e-3, 100.0),
    blocks=st.lists(st.integers(1, 50), min_size=1, max_size=4),
)
def test_instants_ascend_across_blocks(process: str, rate: float, cv: float, blocks: list[int]) -> None:
    arrivals = ArrivalProcess(process, rate, cv, stream(1, "arrivals"))
    instants = np.concatenate([arrivals.take(count) for count in blocks])
    assert instants[0] >= 0
    assert (np.diff(instants) >= 0).all()


def test_rate_only_stretches_the_clock() -> None:
    assert np.allclose(take("poisson", 1.0, 1000), 8 * take("poisson", 8.0, 1000), atol=8)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "2", True, 1e7, 1e-7, [1], 10**400])
def test_bad_rate_is_refused(rate: object) -> None:
    with pytest.raises(ConfigError, match=r"^rate=.*must be a number from .* rate=2$"):
        take("poisson", rate, 1)  # type: ignore[arg-type]


def test_missing_rate_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match="rate is not set.*give for example rate=2, or workload.arrivals=all_at_once"):
        take("poisson", None, 1)


def test_all_at_once_takes_no_rate() -> None:
    with pytest.raises(ConfigError, match="all_at_once has no rate"):
        take("all_at_once", 2.0, 1)


@pytest.mark.parametrize("cv", [0, -1, float("nan"), float("inf"), "1", True, 1e9])
def test_bad_cv_is_refused(cv: object) -> None:
    with pytest.raises(ConfigError, match="workload.cv="):
        take("gamma", 1.0, 1, cv)  # type: ignore[arg-type]


@pytest.mark.parametrize("process", ["poison", "", None, 3])
def test_unknown_process_lists_the_others(process: object) -> None:
    with pytest.raises(ConfigError, match="must be one of poisson, gamma, constant, all_at_once"):
        take(process, 1.0, 1)  # type: ignore[arg-type]
