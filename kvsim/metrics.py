"""The summary of a run: means over time from its steps, latencies from its requests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kvsim.errors import ConfigError, InvariantError
from kvsim.latency import NO_SLO, SLO, BoolArray, Latencies, RequestColumns, Stalls, measure
from kvsim.plan import UNBOUNDED, IntArray
from kvsim.request import Status
from kvsim.units import NS_PER_S

MEMORY_CLASSES = (
    "token_state",
    "reserved",
    "internal",
    "rounding",
    "holes",
    "swap_in_flight",
    "cached",
    "free_usable",
    "free_unusable",
)
"""Where the slots of the pool are; they add up to it in every step."""

Metric = float | int | bool | None

_AVERAGED = ("num_seqs", "token_state", "reserved", "internal")
_STATES = {status: index for index, status in enumerate(Status)}


class StepTotals:
    """Integrals over the measurement window [warmup, end], exact, of steps handed over a chunk at a time.

    Args:
        warmup_ns: start of the window.
        end_ns: its end (``duration``, where the run does not drain); None if the run ends with its last completion.
        pool_tokens: slots of the pool.

    Attributes:
        steps: steps that overlap the window.
        emitted_tokens: tokens of the steps that end in the window.
        run_tokens, run_steps, run_end_ns: tokens and steps of the whole run so far, and the end of its last step.

    Raises:
        ConfigError: an empty window or no pool.
    """

    def __init__(self, warmup_ns: int, end_ns: int | None, pool_tokens: int) -> None:
        if warmup_ns < 0 or (end_ns is not None and end_ns <= warmup_ns):
            limit = "" if end_ns is None else f" and below duration={end_ns / NS_PER_S:g}"
            raise ConfigError(
                f"warmup={warmup_ns / NS_PER_S:g} s leaves nothing to measure; it must be at least 0{limit}"
            )
        if pool_tokens < 1:
            raise ConfigError(f"a pool of {pool_tokens} tokens holds nothing; it needs at least one block")
        self.warmup_ns = warmup_ns
        self.end_ns = end_ns
        self.pool_tokens = pool_tokens
        self.steps = 0
        self.emitted_tokens = 0
        self.run_tokens = 0
        self.run_steps = 0
        self.run_end_ns = 0
        self._integrals = dict.fromkeys(_AVERAGED, 0)

    def add(self, columns: Mapping[str, IntArray]) -> None:
        """Take in the next steps of the run.

        Args:
            columns: int64 columns of equal length, one row a step: ``start_ns``, ``duration_ns``, ``num_seqs``
                (sequences scheduled), ``num_emitted`` (output tokens) and the `MEMORY_CLASSES`, tokens.

        Raises:
            InvariantError: a step starts before the one before it ends, or its memory does not add up to the pool.
        """
        start, duration = columns["start_ns"], columns["duration_ns"]
        if not len(start):
            return
        end = start + duration
        self._check_clock(start, duration, end)
        self._check_memory(columns)
        bound = UNBOUNDED if self.end_ns is None else self.end_ns
        inside = (np.minimum(end, bound) - np.maximum(start, self.warmup_ns)).clip(0)
        for name in _AVERAGED:
            self._integrals[name] += _exact_dot(inside, columns[name])
        self.steps += int(np.count_nonzero(inside))
        emitted = columns["num_emitted"]
        self.emitted_tokens += int(emitted[(end >= self.warmup_ns) & (end <= bound)].sum())
        self.run_tokens += int(emitted.sum())
        self.run_steps += len(start)
        self.run_end_ns = int(end[-1])

    def integral(self, name: str) -> int:
        """Integral over the window of ``num_seqs``, ``token_state``, ``reserved`` or ``internal``, in ns x its unit."""
        return self._integrals[name]

    def _check_clock(self, start: IntArray, duration: IntArray, end: IntArray) -> None:
        wrong = duration <= 0
        wrong[0] |= start[0] < self.run_end_ns
        wrong[1:] |= start[1:] < end[:-1]
        if wrong.any():
            row = int(wrong.argmax())
            detail = f"step {self.run_steps + row} starts at {start[row]} ns and lasts {duration[row]} ns"
            raise InvariantError("INV-clock", f"{detail}; it must last, and start after the step before it")

    def _check_memory(self, columns: Mapping[str, IntArray]) -> None:
        split = np.stack([columns[name] for name in MEMORY_CLASSES])
        wrong = (split.sum(axis=0) != self.pool_tokens) | (split.min(axis=0) < 0)
        if wrong.any():
            row = int(wrong.argmax())
            found = ", ".join(f"{name} {tokens}" for name, tokens in zip(MEMORY_CLASSES, split[:, row], strict=True))
            detail = f"step {self.run_steps + row}: {found} tokens; they must add up to the pool's {self.pool_tokens}"
            raise InvariantError("INV-blocks", detail)


def summarize(
    requests: RequestColumns,
    totals: StepTotals,
    step_end_ns: IntArray,
    stalls: Stalls,
    accepted_ns: IntArray,
    num_waiting: IntArray,
    slo: SLO = NO_SLO,
) -> dict[str, Metric]:
    """The metrics of a run under the names of `vllm bench serve`; what is undefined is None.

    Counts of requests and their tokens, preemptions and latencies are of the requests that arrived after the warm-up
    (`total_input_tokens` and `total_output_tokens`: the completed ones among them). Throughputs are of what completed
    or was emitted in the window, whoever asked for it. `request_goodput` is of the requests of the latencies that kept
    to `slo`, None where that sets no limit. Idle time counts, with an empty batch and a free pool.

    Args:
        requests: all requests of the run.
        totals: all steps of the run.
        step_end_ns: [steps] end of each step.
        stalls: gaps of more than one step between two tokens of a request.
        accepted_ns, num_waiting: [accepted] arrivals that were not rejected, ascending, and the requests waiting
            right after each of them.
        slo: limits on the latencies of a request.

    Raises:
        InvariantError: tokens emitted, requests and steps contradict each other.
    """
    completed = requests.state == _STATES[Status.COMPLETED]
    measured = requests.arrival_ns >= totals.warmup_ns
    chosen = completed & measured
    finished_ns = requests.finished_ns[completed]
    end_ns = totals.end_ns if totals.end_ns is not None else int(finished_ns.max(initial=0))
    _check_totals(requests, completed, totals, end_ns)
    window_ns = max(end_ns - totals.warmup_ns, 0)
    in_window = np.count_nonzero((finished_ns >= totals.warmup_ns) & (finished_ns <= end_ns))
    after_warmup = accepted_ns >= totals.warmup_ns
    latencies = measure(requests, chosen, step_end_ns, stalls, slo)

    def count(status: Status) -> int:
        return int(np.count_nonzero(measured & (requests.state == _STATES[status])))

    def share(name: str) -> float | None:
        return _ratio(totals.integral(name), window_ns * totals.pool_tokens)

    named = sum(totals.integral(name) for name in ("token_state", "reserved", "internal"))
    mean_batch_size = _ratio(totals.integral("num_seqs"), window_ns)
    return {
        "completed": int(np.count_nonzero(chosen)),
        "failed": count(Status.FAILED),
        "rejected": count(Status.REJECTED),
        "unfinished": count(Status.UNFINISHED),
        "saturated": is_saturated(accepted_ns[after_warmup], num_waiting[after_warmup]),
        "total_input_tokens": int(requests.num_prompt_tokens[chosen].sum()),
        "total_output_tokens": int(requests.num_output_tokens[chosen].sum()),
        "request_throughput": _ratio(int(in_window) * 10**9, window_ns),
        "output_throughput": _ratio(totals.emitted_tokens * 10**9, window_ns),
        "request_goodput": None if slo == NO_SLO else _ratio(latencies.num_good * 10**9, window_ns),
        **_latency_metrics(latencies),
        "mean_normalized_latency": latencies.normalized_s.mean(),
        "mean_batch_size": mean_batch_size,
        "mean_batch_requests": mean_batch_size,  # every request has one sequence
        "kv_token_state_frac": share("token_state"),
        "kv_reserved_frac": share("reserved"),
        "kv_internal_frac": share("internal"),
        "kv_external_frac": _ratio(window_ns * totals.pool_tokens - named, window_ns * totals.pool_tokens),
        "num_preemptions": int(requests.num_preemptions[measured].sum()),
        "recomputed_tokens": int(requests.recomputed_tokens[measured].sum()),
        "steps": totals.steps,
    }


def is_saturated(accepted_ns: IntArray, num_waiting: IntArray) -> bool | None:
    """Whether the backlog grew to the end.

    True if, over the last half of the n arrivals (the middle one included), the least-squares slope of the requests
    waiting right after each exceeds 5 % of the rate n / (last - first arrival), and more than max(10, 2 % of n) wait
    after the last one. None where rate or slope is undefined: all of these arrivals at one instant.
    """
    size = len(accepted_ns)
    half = size // 2
    if not size or accepted_ns[half] == accepted_ns[-1]:
        return None
    time = (accepted_ns[half:] - accepted_ns[half]) / NS_PER_S
    time -= time.mean()
    slope = float((time * num_waiting[half:]).sum() / np.square(time).sum())
    rate = size / (int(accepted_ns[-1] - accepted_ns[0]) / NS_PER_S)
    return bool(slope > 0.05 * rate and num_waiting[-1] > max(10, 0.02 * size))


def _latency_metrics(latencies: Latencies) -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"):
        sample = getattr(latencies, name)
        metrics[f"mean_{name}"] = sample.mean()
        metrics[f"median_{name}"] = sample.percentile(50)
        metrics[f"std_{name}"] = sample.std()
        metrics[f"p90_{name}"] = sample.percentile(90)
        metrics[f"p99_{name}"] = sample.percentile(99)
    return metrics


def _check_totals(requests: RequestColumns, completed: BoolArray, totals: StepTotals, end_ns: int) -> None:
    asked = int(requests.num_output_tokens[completed].sum())
    served = completed | (requests.state == _STATES[Status.REJECTED])
    if totals.run_tokens < asked or (served.all() and totals.run_tokens != asked):
        detail = f"{totals.run_tokens} tokens emitted, {asked} asked for by the requests that completed"
        raise InvariantError("INV-tokens", detail)
    if totals.end_ns is None and completed.any() and totals.run_end_ns != end_ns:
        detail = f"the last step ends at {totals.run_end_ns} ns, the last completion is at {end_ns} ns"
        raise InvariantError("INV-clock", detail)


def _ratio(amount: int, whole: int) -> float | None:
    return amount / whole if whole else None


def _exact_dot(durations: IntArray, amounts: IntArray) -> int:
    """Sum of products of non-negative integers, in int64 where that cannot overflow, else in Python integers."""
    if len(durations) * int(durations.max()) * int(amounts.max()) < UNBOUNDED:
        return int(np.dot(durations, amounts))
    return int(np.dot(durations.astype(object), amounts.astype(object)))
