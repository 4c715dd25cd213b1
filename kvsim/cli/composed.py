"""Configurations that a command composes itself, from words as `kvsim run` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import hydra
from hydra import initialize_config_module
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from kvsim.cli.explain import explain
from kvsim.config import build
from kvsim.errors import ConfigError
from kvsim.run import Run


def search_words(config_dir: str | None) -> list[str]:
    """The word that makes Hydra take options from ``DIR/GROUP/OPTION.yaml`` too; none if there is no DIR.

    Raises:
        ConfigError: no such folder.
    """
    if config_dir is None:
        return []
    if not Path(config_dir).is_dir():
        raise ConfigError(f"--config-dir {config_dir}: no such folder; give one with GROUP/OPTION.yaml in it")
    return [f"hydra.searchpath=[{quoted(f'file://{Path(config_dir).absolute()}')}]"]


def quoted(text: str) -> str:
    """`text` as a value for Hydra's parser, whatever it holds."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def composed(overrides: Sequence[str]) -> DictConfig:
    """The configuration.

    Raises:
        ConfigError: a word that cannot be applied.
    """
    return _composed(overrides)[0]


def built(overrides: Sequence[str]) -> Run:
    """The run that these words describe.

    Raises:
        ConfigError: as `kvsim run` would.
    """
    cfg, choices = _composed(overrides)
    try:
        return build(cfg, choices)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, overrides)) from error


def _composed(overrides: Sequence[str]) -> tuple[DictConfig, Mapping[str, str]]:
    """The configuration, and the option chosen in each group."""
    try:
        with initialize_config_module("kvsim.conf", version_base="1.3"):
            whole = hydra.compose("config", list(overrides), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, overrides)) from error
    return OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"]), whole.hydra.runtime.choices


def changed(overrides: Sequence[str], *words: str) -> list[str]:
    """`overrides` with `words` in place of those of the same keys, or of keys below them."""
    keys = {key_of(word) for word in words}
    below = tuple(f"{key}." for key in keys)
    kept = [word for word in overrides if key_of(word) not in keys and not key_of(word).startswith(below)]
    return kept + list(words)


def split_key(overrides: Sequence[str], key: str) -> tuple[list[str], list[str]]:
    """The words that set `key` or keys below it, and the others."""
    ours = [word for word in overrides if key_of(word) == key or key_of(word).startswith(f"{key}.")]
    return ours, [word for word in overrides if word not in ours]


def key_of(word: str) -> str:
    """What a word sets."""
    return word.lstrip("+~").partition("=")[0]
