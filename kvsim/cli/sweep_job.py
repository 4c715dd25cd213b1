"""One run of a sweep, in whatever process the launcher starts it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from kvsim.cli.check import swept_values
from kvsim.cli.child import die_with
from kvsim.cli.folder import run_environment, save_config
from kvsim.config import build
from kvsim.results import RunFolder

log = logging.getLogger(__name__)


def sweep_job(cfg: DictConfig, *, command: Sequence[str], swept_keys: Sequence[str], parent: int | None) -> None:
    """Carry the run out; how it ended stands in its ``status.json``, and the others go on.

    Args:
        command: for ``env.json``.
        swept_keys: go into the summary beside the usual labels, but for ``engine`` ones.
        parent: process id of the sweep, where this is the same process or a child of it.
    """
    if parent is not None:
        die_with(parent)
    hydra = HydraConfig.get()
    choices = hydra.runtime.choices
    swept = swept_values(cfg, choices, [key for key in swept_keys if not key.startswith("engine.")])
    try:
        with RunFolder(hydra.runtime.output_dir) as folder:
            run = build(cfg, choices)
            save_config(cfg, folder.path)
            folder.write_env(run_environment(cfg, command, run.environment))
            labels = run.labels | {key: value for key, value in swept.items() if key not in run.labels}
            dataclasses.replace(run, labels=labels).execute(folder)
    except Exception:
        log.debug("%s", hydra.runtime.output_dir, exc_info=True)
