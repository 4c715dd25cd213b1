"""All points of a sweep, composed and built before the first of them runs."""

from __future__ import annotations

import functools
import itertools
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from kvsim.cli.child import die_with
from kvsim.cli.explain import explain
from kvsim.cli.folder import run_environment
from kvsim.cli.grid import Grid
from kvsim.config import build
from kvsim.errors import ConfigError
from kvsim.progress import CLEAR_LINE, INTERVAL_S
from kvsim.run import Label
from kvsim.sweep import Point

log = logging.getLogger(__name__)

CHUNK = 4
"""Points that a process checks at once, a tenth of a second each."""

MAX_JOBS = 1024

Overrides = tuple[str, ...]


class Checked(NamedTuple):
    """A point, or what is wrong with it, and what its configuration warns of."""

    point: Point | None
    problem: str
    warnings: list[str]


def check_points(
    loader: ConfigLoader, master: DictConfig, grid: Grid, swept_keys: Sequence[str], terminal: TextIO | None = None
) -> list[Point]:
    """All points of the grid. A warning that several of them cause is given once.

    Args:
        terminal: shows how many are checked.

    Raises:
        ConfigError: a point that cannot run, or two that are the same.
    """
    points: dict[str, Point] = {}
    warned: dict[str, None] = {}
    check = functools.partial(_check_point, loader, master, swept_keys)
    total = math.prod(map(len, grid.values()))
    for checked in _counted(_map(check, itertools.product(*grid.values()), master), total, terminal):
        if checked.point is None:
            raise ConfigError(checked.problem)
        if checked.point.folder in points:
            raise ConfigError(f"point {checked.point}: is twice in the grid; give every value once")
        points[checked.point.folder] = checked.point
        warned |= dict.fromkeys(checked.warnings)
    for warning in warned:
        log.warning("%s", warning)
    return list(points.values())


def _counted(checks: Iterable[Checked], total: int, terminal: TextIO | None) -> Iterator[Checked]:
    """`checks`, with their number on one line of the terminal."""
    if terminal is None:
        yield from checks
        return
    due = time.monotonic() + INTERVAL_S
    try:
        for number, checked in enumerate(checks, 1):
            if time.monotonic() >= due:
                due = time.monotonic() + INTERVAL_S
                terminal.write(f"{CLEAR_LINE}checked {number} of {total} points")
                terminal.flush()
            yield checked
    finally:
        terminal.write(CLEAR_LINE)
        terminal.flush()


def _map(
    check: Callable[[Overrides], Checked], combinations: Iterable[Overrides], master: DictConfig
) -> Iterator[Checked]:
    """What `check` says of each, in their order; in the processes that will carry out the runs, if joblib has some."""
    if master.hydra.runtime.choices["hydra/launcher"] != "joblib":
        yield from map(check, combinations)
        return
    from joblib import Parallel, delayed

    num_jobs = master.hydra.launcher.n_jobs
    if num_jobs != -1 and not 1 <= num_jobs <= MAX_JOBS:
        raise ConfigError(f"hydra.launcher.n_jobs={num_jobs}: must be from 1 to {MAX_JOBS}, or -1 for all cores")
    state = Singleton.get_state()
    rest = iter(combinations)
    chunks = iter(lambda: list(itertools.islice(rest, CHUNK)), [])
    # as the launcher's, which then takes its processes over
    parallel = Parallel(n_jobs=num_jobs, max_nbytes=None, return_as="generator")
    jobs = (delayed(_check_chunk)(check, chunk, state, os.getpid()) for chunk in chunks)
    chunks_checked = parallel(jobs)
    try:
        yield from itertools.chain.from_iterable(chunks_checked)
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a wrong point cancels the checks of later ones
            chunks_checked.close()


def _check_chunk(
    check: Callable[[Overrides], Checked], chunk: Sequence[Overrides], state: dict[Any, Any], parent: int
) -> list[Checked]:
    die_with(parent)
    setup_globals()
    Singleton.set_state(state)
    return list(map(check, chunk))


def _check_point(loader: ConfigLoader, master: DictConfig, swept_keys: Sequence[str], overrides: Overrides) -> Checked:
    with _collected_warnings() as warned:
        try:
            config = loader.load_sweep_config(master, list(overrides))
            HydraConfig.instance().set_config(config)
            choices = config.hydra.runtime.choices
            cfg = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
            if OmegaConf.select(config, "hydra.sweeper.params") != OmegaConf.select(master, "hydra.sweeper.params"):
                experiment = choices["experiment"]
                raise ConfigError(f"experiment={experiment}: holds a sweep of its own; give no other beside it")
            build(cfg, choices)
            env = run_environment(cfg, [])
            swept = swept_values(cfg, choices, swept_keys)
            return Checked(Point(overrides, swept, str(env["config_digest"]), str(env["keys_digest"])), "", warned)
        except (HydraException, OmegaConfBaseException) as error:
            problem = explain(error, overrides)
        except ConfigError as error:
            problem = str(error)
    varied = [word for word in overrides if word.partition("=")[0].lstrip("+") in swept_keys]
    return Checked(None, f"point {' '.join(varied)}: {problem}" if varied else problem, warned)


def swept_values(cfg: DictConfig, choices: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Label]:
    """What the swept keys are in this configuration: a group's option, or a value; a list as text."""
    values: dict[str, Label] = {}
    for key in keys:
        value = choices[key] if key in choices else OmegaConf.select(cfg, key)
        values[key] = value if value is None or isinstance(value, str | int | float) else str(value)
    return values


@contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """Inside, what kvsim logs goes to this list."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("kvsim")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
