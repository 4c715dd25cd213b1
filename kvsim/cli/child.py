"""What a process that works for a sweep owes it."""

from __future__ import annotations

import os
import signal
import threading
import time

POLL_S = 0.2

_watched: list[int] = []


def die_with(parent: int) -> None:
    """In a child process, end when `parent` does: a killed sweep leaves nobody who writes to its folder.

    Ctrl-C, which goes to both, is left to `parent`. In `parent` itself nothing happens.
    """
    if os.getpid() == parent or _watched:
        return
    _watched.append(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() != parent:
        os._exit(1)  # the work was still in a queue
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os._exit(1)
