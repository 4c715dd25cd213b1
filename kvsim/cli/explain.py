"""Hydra's and OmegaConf's errors in one line, with the nearest known key or option where a name is misspelt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from kvsim.config import compose
from kvsim.suggest import did_you_mean

UNKNOWN_KEY = re.compile(
    r"(?:Could not override|Could not delete from config\.|Could not append to config\.) '([^']+)'"
)
FULL_KEY = re.compile(r"full_key: (\S+)")
UNKNOWN_FIELD = re.compile(r"^Key '[^']+' (?:not in|is not in struct)")
LONGEST = 300
"""Characters of somebody else's message that are passed on."""
UNKNOWN_OPTION = re.compile(r"Could not find '(.+)/([^'/]+)'")


def explain(error: Exception, overrides: Sequence[str]) -> str:
    """One line for an `error` that Hydra or OmegaConf raised over these `overrides`."""
    text = str(error)
    option = UNKNOWN_OPTION.search(text)
    if isinstance(error, MissingConfigException) and option and error.options:
        group, name = option.groups()
        options = sorted(error.options)
        if group == "hydra/launcher":
            return (
                f"{group}={name}: not installed; pip install 'kvsim[sweep]' adds joblib; there are {', '.join(options)}"
            )
        return f"{group}={name}: no such option{did_you_mean(name, options)}; there are {', '.join(options)}"
    cause = error.__cause__
    key = UNKNOWN_KEY.search(text) or (UNKNOWN_FIELD.search(text) and FULL_KEY.search(text))
    if key:
        # of a mapping that was given as a whole, the one in it
        key = (isinstance(cause, ConfigKeyError) and FULL_KEY.search(str(cause))) or key
        return _unknown_key(key[1], overrides)
    line = _first_line(text).removeprefix("Error merging override ").partition(", set env var")[0]
    if text.startswith("Ambiguous value"):
        return f"{line}: a run takes one value for each key, kvsim sweep several; quote a list as KEY=[a,b]"
    if "requires --multirun" in line:
        return line.replace("requires --multirun", "need kvsim sweep")
    place = FULL_KEY.search(text)
    where = getattr(error, "override", None) or (place and place[1])
    reason = f": {_first_line(str(cause))}" if isinstance(cause, OmegaConfBaseException | ImportError) else ""
    return f"{where}: {line}{reason}" if where else f"{line}{reason}"


def _unknown_key(key: str, overrides: Sequence[str]) -> str:
    known = _known_keys(key, overrides)
    if key in known:
        return f"key {key!r} cannot be taken away; give {key}=VALUE"
    if options := _options_with(key):
        return f"{key}: is a key of {', '.join(options)} and not of the option chosen; choose that one, or leave it out"
    near = did_you_mean(key, known)
    parent, _, _ = key.rpartition(".")
    beside = [name for name in known if parent and name.rpartition(".")[0] == parent and f"{parent}._" not in name]
    if beside and not any(repr(name) in near for name in beside):
        near = f"; there are {', '.join(beside)}"
    return f"unknown key {key!r}{near}; kvsim run --help lists all keys"


def _options_with(key: str) -> list[str]:
    """Options of the key's group that have it."""
    group, _, name = key.partition(".")
    folder = resources.files("kvsim.conf") / group
    files = sorted(folder.iterdir(), key=lambda file: file.name) if name and folder.is_dir() else []
    options = {file.name.removesuffix(".yaml"): file for file in files if file.name.endswith(".yaml")}
    nodes = {option: OmegaConf.create(file.read_text(encoding="utf-8")) for option, file in options.items()}
    return [f"{group}={option}" for option, node in nodes.items() if name in _flatten(DictConfig(node))]


def _known_keys(wrong: str, overrides: Sequence[str]) -> list[str]:
    """Keys and groups of the configuration that the other overrides give, or failing that of the default one."""
    others = [override for override in overrides if override.lstrip("+~").partition("=")[0] != wrong]
    for attempt in (others, []):
        try:
            return ["experiment", *_flatten(compose(attempt))]
        except (HydraException, OmegaConfBaseException):
            continue
    return []


def _flatten(node: DictConfig) -> Iterator[str]:
    """Full names of all keys; interpolations stay as they are."""
    stack: list[tuple[str, Any]] = [("", OmegaConf.to_container(node))]
    while stack:
        prefix, mapping = stack.pop()
        for key, value in mapping.items():
            yield f"{prefix}{key}"
            if isinstance(value, dict):
                stack.append((f"{prefix}{key}.", value))


def _first_line(text: str) -> str:
    """The first sentence, which Hydra may have broken into lines, without OmegaConf's notes on the key."""
    lines = [line.strip() for line in text.strip().splitlines()]
    told = [line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type=", "See "))]
    sentence = " ".join(told).partition(". ")[0].rstrip(".")
    return sentence if len(sentence) <= LONGEST else f"{sentence[:LONGEST]} ..."
