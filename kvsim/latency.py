"""Latencies of requests, exact and vectorised: what a client would have measured, from what the engine recorded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.errors import InvariantError
from kvsim.plan import IntArray
from kvsim.units import NS_PER_MS, NS_PER_S

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class RequestColumns(NamedTuple):
    """Every request of a run; int64 columns of equal length, one row a request.

    Attributes:
        state: index into ``list(kvsim.request.Status)``.
        first_token_ns: when the first token was emitted; -1 if there was none.
        finished_ns: when the answer was delivered, complete; -1 if it was not. A static batch delivers at its end.
        first_step, last_step: numbers of the steps that emitted the first and the last token; -1 if there was none.
        recomputed_tokens: tokens prefilled again after preemptions.
        cached_tokens: prompt tokens found in a cache at first admission.
    """

    request_id: IntArray
    arrival_ns: IntArray
    num_prompt_tokens: IntArray
    num_output_tokens: IntArray
    first_token_ns: IntArray
    finished_ns: IntArray
    state: IntArray
    first_step: IntArray
    last_step: IntArray
    num_preemptions: IntArray
    recomputed_tokens: IntArray
    cached_tokens: IntArray


class Stalls(NamedTuple):
    """Steps in which a started request emitted nothing; int64 columns of equal length, one row a stall.

    The request in row `row` of `RequestColumns` emitted a token in step `from_step` and its next one in
    `to_step`, with ``to_step > from_step + 1``.
    """

    row: IntArray
    from_step: IntArray
    to_step: IntArray


class Sample(NamedTuple):
    """A multiset of numbers: ``values[i]``, ascending, occurs ``counts[i]`` times. An empty one has statistics None."""

    values: FloatArray
    counts: IntArray

    @classmethod
    def of(cls, values: FloatArray, counts: IntArray | None = None) -> Sample:
        """The sample of `values` in any order, each occurring once unless `counts` says otherwise."""
        if counts is None:
            return cls(np.sort(values), np.ones(len(values), dtype=np.int64))
        order = np.argsort(values, kind="stable")
        return cls(values[order], counts[order])

    @property
    def size(self) -> int:
        """Number of members, repetitions counted."""
        return int(self.counts.sum())

    def mean(self) -> float | None:
        """Arithmetic mean."""
        size = self.size
        return float((self.values * self.counts).sum()) / size if size else None

    def std(self) -> float | None:
        """Population standard deviation, as `vllm bench serve` prints it."""
        mean = self.mean()
        if mean is None:
            return None
        return float(np.sqrt((np.square(self.values - mean) * self.counts).sum() / self.size))

    def percentile(self, q: float) -> float | None:
        """The `q`-th percentile, 0..100, equal to the last bit to ``numpy.percentile`` of the written-out multiset."""
        size = self.size
        if not size:
            return None
        position = (size - 1) * (q / 100)
        below = int(position)
        ranks = np.array([below, min(below + 1, size - 1)])
        low, high = self.values[np.searchsorted(self.counts.cumsum(), ranks, side="right")].tolist()
        weight = position - below
        step = high - low
        # numpy interpolates from the nearer end; the other form differs in the last bit
        return float(low + step * weight if weight < 0.5 else high - step * (1 - weight))


class SLO(NamedTuple):
    """The most that each latency of a request may be, ms; None: no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None


NO_SLO = SLO()


class Latencies(NamedTuple):
    """Latencies of a group of completed requests, with the names and definitions of `vllm bench serve`.

    Attributes:
        ttft_ms: arrival to first token.
        tpot_ms: first to last emission, a token after the first; one a request, one-token answers have none.
        itl_ms: every gap between two tokens of a request, all requests pooled; stalls by preemption included.
        e2el_ms: arrival to delivery.
        normalized_s: end-to-end latency per output token, s/token (vLLM paper, section 6.1).
        num_good: requests within every limit of the SLO; a one-token answer is within any on TPOT.
    """

    ttft_ms: Sample
    tpot_ms: Sample
    itl_ms: Sample
    e2el_ms: Sample
    normalized_s: Sample
    num_good: int


def measure(
    requests: RequestColumns, chosen: BoolArray, step_end_ns: IntArray, stalls: Stalls, slo: SLO = NO_SLO
) -> Latencies:
    """Latencies of the requests that `chosen` marks, all of them completed.

    Args:
        chosen: [requests] mask.
        step_end_ns: [steps] end of each step of the run, by step number.
        stalls: of any request; those not chosen are passed over.
        slo: limits that `Latencies.num_good` counts by.

    Raises:
        InvariantError: tokens before arrival, out of order or after delivery, or gaps that do not add up to them.
    """
    arrival, first = requests.arrival_ns[chosen], requests.first_token_ns[chosen]
    last, finished = step_end_ns[requests.last_step[chosen]], requests.finished_ns[chosen]
    num_tokens = requests.num_output_tokens[chosen]
    wrong = (first <= arrival) | (last < first) | (finished < last)
    if wrong.any():
        ids = requests.request_id[chosen][wrong][:5].tolist()
        raise InvariantError("INV-causality", f"requests {ids} have a token before their arrival or out of order")
    e2el_ns = finished - arrival
    ttft_ms, e2el_ms = (first - arrival) / NS_PER_MS, e2el_ns / NS_PER_MS
    tpot_ms = (last - first) / np.maximum(num_tokens - 1, 1) / NS_PER_MS  # 0 of a one-token answer
    several = num_tokens > 1
    good = np.ones(len(first), dtype=np.bool_)
    for values, limit in zip((ttft_ms, tpot_ms, e2el_ms), slo, strict=True):
        if limit is not None:
            good &= values <= limit
    return Latencies(
        ttft_ms=Sample.of(ttft_ms),
        tpot_ms=Sample.of(tpot_ms[several]),
        itl_ms=inter_token_gaps(requests, chosen, step_end_ns, stalls),
        e2el_ms=Sample.of(e2el_ms),
        normalized_s=Sample.of(e2el_ns / num_tokens / NS_PER_S),
        num_good=int(np.count_nonzero(good)),
    )


def inter_token_gaps(requests: RequestColumns, chosen: BoolArray, step_end_ns: IntArray, stalls: Stalls) -> Sample:
    """Every gap between two tokens of the chosen requests, ms, counted instead of listed; arguments as in `measure`.

    A request that emits in steps k-1 and k has the gap between their ends, as have all others that do: so the gap
    ending with step k occurs as often as requests decode there. A stall is one gap over several steps.

    Raises:
        InvariantError: the gaps are not as many as tokens after the first.
    """
    first, last = requests.first_step[chosen], requests.last_step[chosen]
    stalled = chosen[stalls.row]
    from_step, to_step = stalls.from_step[stalled], stalls.to_step[stalled]
    num_steps = len(step_end_ns)
    changes = np.zeros(num_steps + 1, dtype=np.int64)
    for steps, change in ((first, 1), (last, -1), (from_step, -1), (to_step, 1)):
        changes[1:] += change * np.bincount(steps, minlength=num_steps)
    counts = changes.cumsum()[:num_steps]
    expected = int((requests.num_output_tokens[chosen] - 1).sum())
    found = int(counts.sum()) + len(from_step)
    if found != expected or (counts < 0).any():
        raise InvariantError("INV-tokens", f"{found} gaps between tokens, {expected} tokens after the first")
    steps = counts.nonzero()[0]
    gaps_ns = np.concatenate(
        (step_end_ns[steps] - step_end_ns[steps - 1], step_end_ns[to_step] - step_end_ns[from_step])
    )
    return Sample.of(gaps_ns / NS_PER_MS, np.concatenate((counts[steps], np.ones(len(from_step), dtype=np.int64))))
