"""From a group's node of the configuration to the object that it describes."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_method, instantiate
from omegaconf import DictConfig, OmegaConf

from kvsim.errors import ConfigError

PARTS = {
    "model": "kv_bytes_per_token",
    "hardware": "memory_bytes",
    "workload": "next_arrival",
    "cost": "decode_run",
    "executor": "execute",
    "scheduler": "schedule",
    "allocator": "allocate",
}
"""Groups that become objects, and what tells one."""

GPU_MODULES = ("torch", "triton", "safetensors", "gguf")
"""What only executor=gpu needs."""


def make_part(cfg: DictConfig, group: str, **available: object) -> Any:
    """The object that a group's node describes; the only caller of `instantiate`.

    A node with ``_partial_: true`` is completed with those of the `available` objects that its constructor names.
    The oracle goes only to who declares ``uses_oracle`` (INV-oracle).

    Raises:
        ConfigError: the node is incomplete, has keys that its constructor does not take, or is of another group.
        InstantiationException: its constructor cannot be found or failed.
    """
    if "_target_" not in (cfg[group] or {}):
        raise ConfigError(f"{group}: the option chosen has no _target_; kvsim run --help lists complete ones")
    for key in OmegaConf.missing_keys(cfg[group]):
        raise ConfigError(f"{key} is not set; give {key}=VALUE")
    try:
        made = instantiate(cfg[group])
    except InstantiationException as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from error
        missing = _missing_module(error)
        if missing in GPU_MODULES:
            raise ConfigError(
                f"{group}: the Python package {missing} is not installed; pip install 'kvsim[gpu]' brings it"
            ) from error
        raise
    if not isinstance(made, functools.partial):
        return _checked(made, group)
    if not getattr(made.func, "uses_oracle", False):
        available.pop("oracle", None)
    try:
        signature = inspect.signature(made.func)
    except ValueError as error:
        raise ConfigError(f"{group}: {made.func.__qualname__} tells no arguments; choose another _target_") from error
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
        available = {name: value for name, value in available.items() if name in signature.parameters}
    ours = [name for name in made.keywords if name in available and name != "max_model_len"]
    if ours:
        raise ConfigError(f"{group}.{ours[0]}: is set by kvsim; leave it out")
    keywords = {name: value for name, value in made.keywords.items() if name not in available} | available
    try:
        signature.bind(*made.args, **keywords)
    except TypeError as error:
        raise ConfigError(f"{group}: {made.func.__qualname__} takes other keys: {error}") from error
    return _checked(made.func(*made.args, **keywords), group)


def asks_for(cfg: DictConfig, group: str, name: str) -> bool:
    """Whether the constructor of a group's node takes an object of this name."""
    parameters = inspect.signature(get_method(cfg[group]["_target_"])).parameters
    return name in parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def _missing_module(error: BaseException) -> str | None:
    """Top-level name of the module that was not there to be imported, if that is what went wrong."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ModuleNotFoundError):
        cause = cause.__cause__
    return cause.name.partition(".")[0] if cause is not None and cause.name else None


def _checked(made: Any, group: str) -> Any:
    """What was made, if it can do what its group is for."""
    needed = PARTS[group]
    if not hasattr(made, needed):
        raise ConfigError(
            f"{group}: {type(made).__name__} has no {needed!r}, so it is no {group}; choose another _target_"
        )
    return made
