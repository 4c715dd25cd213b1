"""`kvsim run`: one experiment."""

from __future__ import annotations

import logging
import os
import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from kvsim.cli.explain import explain
from kvsim.cli.flags import flags_first
from kvsim.cli.folder import save_config
from kvsim.config import build
from kvsim.errors import ConfigError

log = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Run what the overrides among `arguments` describe; Hydra's own flags work too.

    Raises:
        ConfigError: wrong usage or configuration; no folder is left behind.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv[1:] = flags_first(arguments)
    app = hydra.main(version_base="1.3", config_path="pkg://kvsim.conf", config_name="config")(job)
    try:
        app()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, [word for word in sys.argv[1:] if not word.startswith("-")])) from error
    return 0


def job(cfg: DictConfig) -> None:
    """What Hydra calls once the run folder exists."""
    try:
        run = build(cfg)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, list(HydraConfig.get().overrides.task))) from error
    folder = save_config(cfg)
    # The rest needs the recorder.
