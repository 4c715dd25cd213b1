"""The run folder: what Hydra makes is taken away again if the configuration proved wrong."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from kvsim.environment import environment
from kvsim.errors import ConfigError

UNUSED = ("output", "sweep", "calibrate", "validate")
"""Keys that decide nothing of a run's result."""

MISCONFIGURED = (ConfigError, HydraException, OmegaConfBaseException)


class RemoveNewFolder(Callback):
    """Removes the folder that Hydra made for a run that proved misconfigured; one that was there stays."""

    def __init__(self) -> None:
        self._new: list[Path] = []

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Note which folders do not exist yet, the run's first, then those around it."""
        folder = Path(config.hydra.run.dir).absolute()
        self._new = [path for path in (folder, *folder.parents) if not path.exists()]

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Remove the run's with all in it, and those around it if nobody else uses them."""
        if not self._new or not isinstance(job_return.return_value, MISCONFIGURED):
            return
        shutil.rmtree(self._new[0])
        for path in self._new[1:]:
            with contextlib.suppress(OSError):
                path.rmdir()


def save_config(config: DictConfig, folder: Path) -> None:
    """Write ``.hydra/{config,hydra,overrides}.yaml`` into the run folder.

    Hydra would write them before the configuration is known to be right, over those of an earlier run, and with where
    and how the run was started, which is in ``env.json``: the same run gives the same files wherever it runs.
    """
    hydra = HydraConfig.get()
    chosen = {
        "runtime": {
            "version": hydra.runtime.version,
            "choices": {group: option for group, option in hydra.runtime.choices.items() if "hydra/" not in group},
        },
        "overrides": {"task": hydra.overrides.task},
        "job": {"config_name": hydra.job.config_name},
    }
    inner = folder / ".hydra"
    inner.mkdir(exist_ok=True)
    OmegaConf.save(config, inner / "config.yaml")
    OmegaConf.save(OmegaConf.create({"hydra": chosen}), inner / "hydra.yaml")
    OmegaConf.save(hydra.overrides.task, inner / "overrides.yaml")


def run_environment(
    config: DictConfig, command: Sequence[str], executor: Mapping[str, str | None] | None = None
) -> dict[str, object]:
    """What ``env.json`` holds, see `environment`; its digest leaves out the `UNUSED` keys."""
    keys = cast("dict[str, object]", OmegaConf.to_container(config, resolve=True))
    return environment({key: value for key, value in keys.items() if key not in UNUSED}, command, executor)
