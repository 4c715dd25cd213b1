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
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]  # type: ignore[no-untyped-call]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize(device)
    rounds = [1e3 * float(before.elapsed_time(after)) for before, after in pairwise(events)]
    return statistics.median(rounds) / (turns * len(calls))


def _host_us(calls: Sequence[Call]) -> float:
    start = time.perf_counter()
    for call in calls:
        call()
    return 1e6 * (time.perf_counter() - start) / len(calls)


def copy_bandwidth(device: torch.device, num_bytes: int = 1 << 30) -> float:
    """TB/s that a copy within the device's memory reads and writes together."""
    source = torch.zeros(num_bytes if device.type == "cuda" else 1 << 20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / median_us([lambda: target.copy_(source)], device=device, repeats=5) / 1e6
