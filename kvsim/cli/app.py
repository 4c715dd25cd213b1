"""The run as a Hydra application."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from kvsim.cli.explain import explain
from kvsim.cli.folder import run_environment, save_config
from kvsim.config import build
from kvsim.errors import ConfigError
from kvsim.results import FolderInUseError, RunFolder, holds_run

log = logging.getLogger(__name__)


def run_app() -> None:
    """Compose the configuration of `sys.argv` and do what its flags say, by default run it.

    Raises:
        ConfigError: wrong usage or configuration; no folder is left behind.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # else Hydra prints the error itself and exits
    errors: list[Exception] = []

    def quiet_job(cfg: DictConfig) -> Exception | None:
        # Hydra announces an exception that it sees on a line of its own
        try:
            job(cfg)
        except Exception as error:
            errors.append(error)
            return None if isinstance(error, FolderInUseError) else error  # the folder is another run's: it stays
        return None

    try:
        hydra.main(version_base="1.3", config_path="pkg://kvsim.conf", config_name="config")(quiet_job)()
        for error in errors:
            raise error
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, [word for word in sys.argv[1:] if not word.startswith("-")])) from error
    except (OSError, ValueError) as error:
        if error in errors:
            raise
        raise ConfigError(unusable(error, "hydra.run.dir") if isinstance(error, OSError) else str(error)) from error


def unusable(error: OSError, key: str) -> str:
    """One line for a folder that cannot be used; `key` is what sets it."""
    return (
        f"cannot use {error.filename}: {error.strerror}; choose another folder, {key}=DIR"
        if error.filename
        else str(error)
    )


def job(cfg: DictConfig) -> None:
    """What Hydra calls once the run folder exists: build, execute, write, print."""
    from kvsim.table import print_summaries

    if cfg.sweep.dry_run:
        raise ConfigError("sweep.dry_run=true: is for kvsim sweep; leave it out, or see the keys with --cfg job")
    hydra_config = HydraConfig.get()
    run = build(cfg, hydra_config.runtime.choices)
    output_dir = Path(hydra_config.runtime.output_dir)
    if (output_dir / "status.json").exists() and holds_run(output_dir):
        log.info("replacing the run in %s", os.path.relpath(output_dir))
    with RunFolder(output_dir) as folder:
        save_config(cfg, folder.path)
        folder.write_env(run_environment(cfg, ["kvsim", "run", *sys.argv[1:]], run.environment))
        summary = run.execute(folder, sys.stderr if sys.stderr.isatty() else None)
    if summary["rejected"] and not summary["completed"]:
        log.warning("every request was rejected; the column reason of %s says why", folder.path / "requests.parquet")
    elif not any(summary[state] for state in ("completed", "failed", "rejected", "unfinished")):
        log.warning("no request was measured: none arrived after warmup=%g s; lower it or lengthen the run", cfg.warmup)
    print_summaries([summary], cfg.output)
    log.info("results in %s", os.path.relpath(folder.path))
