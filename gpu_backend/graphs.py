"""CUDA graphs: a forward pass is launched as one thing instead of kernel by kernel."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


def can_capture(device: torch.device) -> bool:
    """Whether there are CUDA graphs."""
    return device.type == "cuda"


class GraphPool:
    """Captures work into graphs that share their scratch memory, so they run one at a time. Capture the largest first.

    Args:
        generators: random generators that the work draws from.
    """

    def __init__(self, device: torch.device, generators: tuple[torch.Generator, ...] = ()) -> None:
        self._generators = generators
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """The graph of `work`, which is also run once, so that nothing is compiled or set up while capturing."""
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            work()
            self._stream.synchronize()
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph


@contextmanager
def no_collection() -> Iterator[None]:
    """Inside, no garbage is collected: freeing memory of the device would break a capture."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
