"""`BlockWorkload`: requests built from blocks of columns; `Limits`: when a workload stops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np

from kvsim.checks import check_integer, check_number
from kvsim.plan import UNBOUNDED, IntArray
from kvsim.protocols import Arrival
from kvsim.request import Request
from kvsim.units import MAX_SECONDS, NS_PER_S

MAX_REQUESTS = 1_000_000_000
MAX_TOKENS = 10_000_000
"""Longest prompt or output a workload may hold, in tokens."""


class Block(NamedTuple):
    """Some consecutive requests as columns of equal length; see `Request` and `Arrival`."""

    request_ids: IntArray
    arrivals_ns: IntArray
    num_prompt_tokens: IntArray
    num_output_tokens: IntArray


class Limits:
    """Which arrivals a run takes: those before `duration`, and of these the first `num_requests`.

    Args:
        duration: seconds, or None for no limit.
        num_requests: a count, or None for no limit.

    Raises:
        ConfigError: a limit that is not a positive number in range.
    """

    def __init__(self, duration: float | None, num_requests: int | None) -> None:
        self.end_ns = UNBOUNDED
        self.num_requests = UNBOUNDED
        if duration is not None:
            seconds = check_number("duration", duration, 1e-9, MAX_SECONDS, "give seconds, for example duration=600")
            self.end_ns = round(seconds * NS_PER_S)
        if num_requests is not None:
            remedy = "give for example num_requests=1000"
            self.num_requests = check_integer("num_requests", num_requests, 1, MAX_REQUESTS, remedy)

    def count(self, arrivals_ns: IntArray, taken: int = 0) -> int:
        """How many of these ascending arrivals a run takes that took `taken` before."""
        return min(int(np.searchsorted(arrivals_ns, self.end_ns)), self.num_requests - taken)


class BlockWorkload:
    """A `kvsim.protocols.Workload` over blocks in order of (arrival, request id), each made when needed."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._arrivals = chain.from_iterable(map(_arrivals, blocks))

    def next_arrival(self) -> Arrival | None:
        """The next request, or None after the last."""
        return next(self._arrivals, None)


def _arrivals(block: Block) -> Iterator[Arrival]:
    """The block's requests; plain ints, for numpy scalars would slow everything after."""
    ids, times, prompts, outputs = (column.tolist() for column in block)
    return map(Arrival, map(Request, ids, times, prompts), outputs)
