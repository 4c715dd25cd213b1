"""Limits that make no scheduler are refused in one line."""

from __future__ import annotations

import math
from functools import partial

import pytest

from kvsim.errors import ConfigError
from kvsim.kv.paged import PagedAllocator
from kvsim.plan import UNBOUNDED
from kvsim.sched.chunked import ChunkedScheduler
from kvsim.sched.fcfs import FCFSScheduler
from kvsim.sched.static import StaticScheduler
from tests.sched.driver import drive

SCHEDULERS = pytest.mark.parametrize(
    "scheduler", [partial(FCFSScheduler, prefill_first=True), StaticScheduler, ChunkedScheduler]
)


@SCHEDULERS
@pytest.mark.parametrize("name", ["max_num_seqs", "max_num_batched_tokens"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, math.nan, "8"])
def test_limits_are_whole_numbers_from_one(scheduler: object, name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"scheduler.{name}={value!r}: must be a whole number from 1 to") as error:
        drive(scheduler, PagedAllocator(4, 4, max_model_len=16), **{name: value})
    assert "\n" not in str(error.value)


@SCHEDULERS
def test_null_is_no_limit(scheduler: object) -> None:
    made = drive(scheduler, PagedAllocator(4, 4, max_model_len=16)).scheduler
    assert made.max_num_seqs == made.max_num_batched_tokens == UNBOUNDED  # type: ignore[attr-defined]
    assert made.max_model_len == 16
