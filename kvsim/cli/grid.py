"""The points of a sweep: the grid that the overrides span, every point composed and built before the first job."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from kvsim.cli.explain import explain
from kvsim.cli.folder import run_environment
from kvsim.config import build
from kvsim.errors import ConfigError
from kvsim.run import Label
from kvsim.sweep import Point

MAX_POINTS = 10_000
"""Points of a grid, each of which takes a tenth of a second to check."""

Grid = dict[str, list[str]]
"""Key -> its overrides, several for a swept key; a point takes one of each."""


def expand(loader: ConfigLoader, master: DictConfig) -> tuple[Grid, list[str]]:
    """The grid of ``hydra.sweeper.params`` and the command line, which beats it key by key, and the keys swept.

    Raises:
        ConfigError: a range without discrete values, or too many points.
        HydraException: a value that cannot be parsed.
    """
    params: dict[str, str] = OmegaConf.select(master, "hydra.sweeper.params") or {}
    words = [*(f"{key}={value}" for key, value in params.items()), *master.hydra.overrides.task]
    parsed = {
        str(override.get_key_element()).lstrip("+"): override
        for override in OverridesParser.create(config_loader=loader).parse_overrides(words)
    }
    grid = {key: _choices(override) for key, override in parsed.items()}
    if (size := math.prod(map(len, grid.values()))) > MAX_POINTS:
        raise ConfigError(f"the grid has {size} points or more; at most {MAX_POINTS}: sweep fewer values at once")
    return grid, [key for key, override in parsed.items() if override.is_sweep_override()]


def _choices(override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if not override.is_discrete_sweep():
        raise ConfigError(f"{override.input_line}: has no end of values; give KEY=a,b,c or KEY=range(from,to,step)")
    values = list(itertools.islice(override.sweep_string_iterator(), MAX_POINTS + 1))
    if not values:
        raise ConfigError(f"{override.input_line}: comes to no value; give KEY=a,b,c")
    return [f"{override.get_key_element()}={value}" for value in values]


def check_points(loader: ConfigLoader, master: DictConfig, grid: Grid, swept_keys: Sequence[str]) -> list[Point]:
    """All points, each composed and built. A warning that several of them cause is given once.

    Raises:
        ConfigError: a point that cannot run, or two that are the same.
    """
    points: dict[str, Point] = {}
    with _once():
        for overrides in itertools.product(*grid.values()):
            point = _check_point(loader, master, overrides, swept_keys)
            if point.folder in points:
                raise ConfigError(f"point {point}: is twice in the grid; give every value once")
            points[point.folder] = point
    return list(points.values())


def _check_point(
    loader: ConfigLoader, master: DictConfig, overrides: tuple[str, ...], swept_keys: Sequence[str]
) -> Point:
    try:
        config = loader.load_sweep_config(master, list(overrides))
        HydraConfig.instance().set_config(config)
        choices = config.hydra.runtime.choices
        cfg = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        if OmegaConf.select(config, "hydra.sweeper.params") != OmegaConf.select(master, "hydra.sweeper.params"):
            raise ConfigError(f"experiment={choices['experiment']}: holds a sweep of its own; give no other beside it")
        build(cfg, workload_name=choices["workload"])
        return Point(overrides, swept_values(cfg, choices, swept_keys), str(run_environment(cfg, [])["config_digest"]))
    except (HydraException, OmegaConfBaseException) as error:
        reason = explain(error, overrides)
    except ConfigError as error:
        reason = str(error)
    varied = [word for word in overrides if word.partition("=")[0].lstrip("+") in swept_keys]
    raise ConfigError(f"point {' '.join(varied)}: {reason}" if varied else reason)


def swept_values(cfg: DictConfig, choices: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Label]:
    """What the swept keys are in this configuration: a group's option, or a value; a list as text."""
    values: dict[str, Label] = {}
    for key in keys:
        value = choices[key] if key in choices else OmegaConf.select(cfg, key)
        values[key] = value if value is None or isinstance(value, str | int | float) else str(value)
    return values


@contextmanager
def _once() -> Iterator[None]:
    """Inside, the root logger's handlers pass every message once."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        new = record.getMessage() not in seen
        seen.add(record.getMessage())
        return new

    handlers = logging.getLogger().handlers[:]
    for handler in handlers:
        handler.addFilter(is_new)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_new)
