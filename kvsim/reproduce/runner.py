"""Runs spread over the cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Self, TextIO, TypeVar

from kvsim.errors import ConfigError
from kvsim.progress import CLEAR_LINE

Item = TypeVar("Item")
Value = TypeVar("Value")
Numbers = dict[str, float]


class Runner:
    """Context manager: simulates in processes of its own, each configuration once.

    Args:
        jobs: processes.
        label: what the line of progress starts with.
        terminal: takes that line; None: there is none.
    """

    def __init__(self, jobs: int, label: str = "", terminal: TextIO | None = None) -> None:
        # spawned, not forked: `map` makes threads
        self._pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_worker)
        self._futures: dict[tuple[str, ...], Future[Numbers]] = {}
        self._label = label
        self._terminal = terminal
        self._lock = threading.Lock()
        self._ended = 0
        self._start = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._terminal:
            self._terminal.write(CLEAR_LINE)
            self._terminal.flush()

    def mean(self, metric: str, *overrides: str, seeds: Sequence[int]) -> float:
        """Mean over the seeds of a metric.

        Raises:
            ConfigError: as `kvsim run` would with these overrides; or a seed leaves the metric undefined.
            ChildProcessError: a process was killed.
        """
        try:
            futures = [self._submit((*overrides, f"seed={seed}")) for seed in seeds]
            values = [future.result().get(metric) for future in futures]
        except BrokenProcessPool as error:
            remedy = "if for want of memory, give fewer --jobs"
            raise ChildProcessError(f"a process that simulates {' '.join(overrides)} was killed; {remedy}") from error
        defined = [value for value in values if value is not None]
        if len(defined) < len(values):
            count = f"{len(values) - len(defined)} of {len(values)} seeds"
            raise ConfigError(f"{' '.join(overrides)}: {metric} is undefined under {count}; see kvsim run with these")
        return sum(defined) / len(defined)

    def map(self, function: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
        """`function` of every item, in order, all at once; in threads, since each waits for runs."""
        items = list(items)
        with ThreadPoolExecutor(len(items)) as threads:
            try:
                return list(threads.map(function, items))
            except BaseException:
                self._pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _submit(self, overrides: tuple[str, ...]) -> Future[Numbers]:
        with self._lock:
            if overrides not in self._futures:
                self._futures[overrides] = self._pool.submit(simulate, overrides)
                self._futures[overrides].add_done_callback(self._count)
            return self._futures[overrides]

    def _count(self, _: Future[Numbers]) -> None:
        self._ended += 1
        if self._terminal:
            seconds = time.monotonic() - self._start
            runs = f"{self._ended} of {len(self._futures)} runs"
            self._terminal.write(f"{CLEAR_LINE}{self._label}: {runs}, {seconds:.0f} s")
            self._terminal.flush()


def simulate(overrides: tuple[str, ...]) -> Numbers:
    """The metrics of a run that are numbers."""
    from kvsim.config import build, compose

    summary = build(compose(overrides)).execute()
    return {name: float(value) for name, value in summary.items() if isinstance(value, int | float)}


def _start_worker() -> None:
    # an interrupted worker ends without a word, and no run of many shows progress of its own
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
