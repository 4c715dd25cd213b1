"""Configurations that a command composes itself, from words as `kvsim run` takes them."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from kvsim.cli.explain import explain
from kvsim.config import build, compose
from kvsim.errors import ConfigError
from kvsim.run import Run


def composed(overrides: Sequence[str]) -> DictConfig:
    """The configuration.

    Raises:
        ConfigError: a word that cannot be applied.
    """
    try:
        return compose(overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, overrides)) from error


def built(overrides: Sequence[str]) -> Run:
    """The run that these words describe.

    Raises:
        ConfigError: as `kvsim run` would.
    """
    try:
        return build(composed(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, overrides)) from error


def changed(overrides: Sequence[str], *words: str) -> list[str]:
    """`overrides` with `words` in place of those of the same keys, or of keys below them."""
    keys = {_key(word) for word in words}
    below = tuple(f"{key}." for key in keys)
    kept = [word for word in overrides if _key(word) not in keys and not _key(word).startswith(below)]
    return kept + list(words)


def split_key(overrides: Sequence[str], key: str) -> tuple[list[str], list[str]]:
    """The words that set `key` or keys below it, and the others."""
    ours = [word for word in overrides if _key(word) == key or _key(word).startswith(f"{key}.")]
    return ours, [word for word in overrides if word not in ours]


def _key(word: str) -> str:
    return word.lstrip("+~").partition("=")[0]
