"""The grid of a sweep, from its overrides."""

from __future__ import annotations

import itertools
import math

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from kvsim.errors import ConfigError

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
