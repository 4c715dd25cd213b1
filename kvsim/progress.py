"""How far a run or a sweep is, on a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from kvsim.plan import StepPlan, StepResult
from kvsim.protocols import Executor
from kvsim.units import NS_PER_S

INTERVAL_S = 0.1
BAR_INTERVAL_S = 0.5
CLEAR_LINE = "\r\x1b[K"


class ProgressExecutor:
    """An executor that also keeps one line of a terminal up to date, ten times a second.

    Args:
        executor: does the work.
        stream: the terminal.
    """

    def __init__(self, executor: Executor, stream: TextIO) -> None:
        self._executor = executor
        self._stream = stream
        self._due = time.monotonic() + INTERVAL_S

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        """See `Executor`."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + INTERVAL_S
            queues = f"{plan.num_running} running, {plan.num_waiting} waiting"
            self._stream.write(f"{CLEAR_LINE}simulated {now / NS_PER_S:.0f} s, step {plan.step}: {queues}")
            self._stream.flush()
        return self._executor.execute(plan, now, max_repeats, until)

    def clear(self) -> None:
        """Leave the line empty."""
        self._stream.write(CLEAR_LINE)
        self._stream.flush()


@contextmanager
def progress_bar(num_ended: Callable[[], int], total: int, terminal: TextIO | None) -> Iterator[None]:
    """Inside, a bar of runs with the time left, whichever process carries them out; nothing without a `terminal`.

    Args:
        num_ended: counts the runs that ended; asked from a thread, twice a second.
        total: runs in all.
    """
    if terminal is None:
        yield
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        MofNCompleteColumn(),
        TextColumn("runs"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(file=terminal),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        speed_estimate_period=1e9,  # of the whole sweep, since a run may take minutes
    )
    task = bar.add_task("", total=total, completed=num_ended())
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(BAR_INTERVAL_S):
            bar.update(task, completed=num_ended())

    poller = threading.Thread(target=poll, daemon=True)
    with bar:
        poller.start()
        try:
            yield
        finally:
            stop.set()
            poller.join()
