"""The run folder: what Hydra makes is taken away again if the configuration proved wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from kvsim.errors import ConfigError


class RemoveNewFolder(Callback):
    """Removes the empty folders that Hydra made for a run that ended in a `ConfigError`; older ones stay."""

    def __init__(self) -> None:
        self._new: list[Path] = []

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Note which folders do not exist yet, innermost first."""
        folder = Path(config.hydra.run.dir).absolute()
        self._new = [path for path in (folder, *folder.parents) if not path.exists()]

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Remove those of them that are empty."""
        if job_return.status is not JobStatus.FAILED or not isinstance(job_return._return_value, ConfigError):
            return
        for path in self._new:
            try:
                path.rmdir()
            except OSError:  # not empty: another run lives there
                return


def save_config(config: DictConfig) -> Path:
    """Write ``.hydra/{config,hydra,overrides}.yaml`` into the run folder.

    Returns:
        The run folder.

    Raises:
        OSError: the folder cannot be written.
    """
    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    inner = folder / ".hydra"
    inner.mkdir(exist_ok=True)
    OmegaConf.save(config, inner / "config.yaml")
    OmegaConf.save(OmegaConf.create({"hydra": hydra}), inner / "hydra.yaml")
    OmegaConf.save(hydra.overrides.task, inner / "overrides.yaml")
    return folder
