"""Hydra's and OmegaConf's errors in one line, with the nearest known key or option where a name is misspelt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hydra import compose, initialize_config_module
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from kvsim.suggest import did_you_mean

UNKNOWN_KEY = re.compile(r"(?:Could not override|Could not delete from config\.|Could not append to config\.) '([^']+)'")
UNKNOWN_FIELD = re.compile(r"^Key '[^']+' (?:not in|is not in struct)")
UNKNOWN_OPTION = re.compile(r"Could not find '(.+)/([^'/]+)'")


def explain(error: Exception, overrides: Sequence[str]) -> str:
    """One line for an `error` that Hydra or OmegaConf raised over these `overrides`."""
    text = str(error)
    option = UNKNOWN_OPTION.search(text)
    if isinstance(error, MissingConfigException) and option and error.options:
        group, name = option.groups()
        options = sorted(error.options)
        return f"{group}={name}: no such option{did_you_mean(name, options)}; there are {', '.join(options)}"
    key = UNKNOWN_KEY.search(text)
    if key:
        return unknown_key(key[1], overrides)
    full_key = getattr(error, "full_key", None)
    if full_key and UNKNOWN_FIELD.search(text):
        return unknown_key(full_key, overrides)
    if text.startswith("Ambiguous value"):
        return f"{_first_line(text)}: a run takes one value for each key; quote a list as KEY=[a,b]"
    cause = error.__cause__
    reason = f": {_first_line(str(cause))}" if isinstance(cause, OmegaConfBaseException) else ""
    line = _first_line(text).removeprefix("Error merging override ").partition(", set env var")[0]
    return f"{full_key}: {line}{reason}" if full_key else f"{line}{reason}"


def unknown_key(key: str, overrides: Sequence[str] = ()) -> str:
    """One line for a `key` that the configuration lacks."""
    return f"unknown key {key!r}{did_you_mean(key, _known_keys(key, overrides))}; kvsim run --help lists all keys"


def _known_keys(wrong: str, overrides: Sequence[str]) -> list[str]:
    """Keys and groups of the configuration that the other overrides give, or failing that of the default one."""
    others = [override for override in overrides if override.lstrip("+~").partition("=")[0] != wrong]
    with initialize_config_module("kvsim.conf", version_base="1.3"):
        for attempt in (others, []):
            try:
                return ["experiment", *_flatten(compose("config", attempt))]
            except (HydraException, OmegaConfBaseException):
                continue
    return []


def _flatten(node: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in node:
        name = f"{prefix}{key}"
        yield name
        child: Any = OmegaConf.to_container(node, resolve=False)[key]  # type: ignore[index,call-overload]
        if isinstance(child, dict):
            yield from _flatten(OmegaConf.create(child), f"{name}.")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].rstrip(".")
