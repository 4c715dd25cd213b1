"""One run of a sweep, in whatever process the launcher starts it."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import threading
import time
from collections.abc import Sequence

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from kvsim.cli.check import swept_values
from kvsim.cli.folder import run_environment, save_config
from kvsim.config import build
from kvsim.results import RunFolder

log = logging.getLogger(__name__)

POLL_S = 0.2


def sweep_job(cfg: DictConfig, *, command: Sequence[str], swept_keys: Sequence[str], parent: int | None) -> None:
    """Carry the run out; how it ended stands in its ``status.json``, and the others go on.

    Args:
        command: for ``env.json``.
        swept_keys: go into the summary beside the usual labels, but for ``engine`` ones.
        parent: process id of the sweep, where this is the same process or a child of it.
    """
    if parent is not None:
        _die_with(parent)
    hydra = HydraConfig.get()
    choices = hydra.runtime.choices
    swept = swept_values(cfg, choices, [key for key in swept_keys if not key.startswith("engine.")])
    try:
        with RunFolder(hydra.runtime.output_dir) as folder:
            run = build(cfg, workload_name=choices["workload"])
            save_config(cfg, folder.path)
            folder.write_env(run_environment(cfg, command))
            dataclasses.replace(run, labels=run.labels | swept | run.labels).execute(folder)
    except Exception:
        log.debug("%s", hydra.runtime.output_dir, exc_info=True)


def _die_with(parent: int) -> None:
    """In a child process, end when `parent` does: a killed sweep leaves nobody who writes to its folder.

    Ctrl-C, which goes to both, is left to `parent`.
    """
    if os.getpid() == parent or _watched:
        return
    _watched.append(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_S)
        os._exit(1)

    if os.getppid() != parent:
        os._exit(1)  # the job was still in the queue
    threading.Thread(target=watch, daemon=True).start()


_watched: list[int] = []
