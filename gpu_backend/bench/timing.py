"""How long a launch takes on the device, and how fast the device copies."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

Call = Callable[[], object]

MIN_LAUNCHES = 20  # of one replay, so that its fixed cost does not show


def median_us(calls: Sequence[Call], *, device: torch.device, repeats: int) -> float:
    """Median over `repeats` rounds of the mean time of a call, us; the calls take turns.

    On a GPU a round is the replay of a CUDA graph: the host's launches are left out, as they are when serving.
    """
    for call in calls:
        call()
    if device.type != "cuda":
        return statistics.median(_host_us(calls) for _ in range(repeats))
    torch.cuda.synchronize(device)
    turns = -(-MIN_LAUNCHES // len(calls))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in [*calls] * turns:
            call()
    graph.replay()
    return _device_us(graph.replay, repeats=repeats) / (turns * len(calls))


def _device_us(call: Call, *, repeats: int) -> float:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]  # type: ignore[no-untyped-call]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(1e3 * float(before.elapsed_time(after)) for before, after in pairwise(events))


def _host_us(calls: Sequence[Call]) -> float:
    start = time.perf_counter()
    for call in calls:
        call()
    return 1e6 * (time.perf_counter() - start) / len(calls)


def copy_bandwidth(device: torch.device, num_bytes: int = 2 << 30) -> float:
    """TB/s that a copy within the device's memory reads and writes together.

    Launched, not replayed: in a graph a copy falls to the copy engine, which is slower than the processors.
    """
    cuda = device.type == "cuda"
    source = torch.empty(num_bytes // 2 if cuda else 1 << 20, dtype=torch.bfloat16, device=device).normal_()
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    copy()
    time_us = _device_us(copy, repeats=10) if cuda else _host_us([copy] * 5)
    return 2 * source.nbytes / time_us / 1e6
