"""A sweep from its command line to its table; Hydra composes the points, its launchers carry them out."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple, TextIO

from hydra import initialize_config_module
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.utils import configure_log
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from kvsim.cli.app import unusable
from kvsim.cli.check import check_points
from kvsim.cli.composed import search_words
from kvsim.cli.explain import explain
from kvsim.cli.grid import expand
from kvsim.cli.sweep_job import sweep_job
from kvsim.errors import ConfigError
from kvsim.progress import progress_bar
from kvsim.sweep import Earlier, Point, SweepFolder
from kvsim.table import SWEEP_METRICS, print_rows

log = logging.getLogger(__name__)


class Sweep(NamedTuple):
    """A checked sweep: all that a launcher needs."""

    context: HydraContext
    master: DictConfig
    swept_keys: list[str]
    folder: SweepFolder


def run_sweep(overrides: Sequence[str], config_dir: str | None) -> int:
    """Run the points that these overrides span and that have no finished run yet; 1 if one failed.

    Raises:
        ConfigError: wrong usage or configuration of any point, or the folder holds runs with other keys, or is in use;
            nothing has been run and no folder is left behind.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        sweep = _compose(overrides, config_dir)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, overrides)) from error
    if sweep.master.sweep.dry_run:
        _print_points(sweep)
        return 0
    with ExitStack() as stack:
        try:
            stack.enter_context(sweep.folder.lock())
        except OSError as error:
            raise ConfigError(unusable(error, "hydra.sweep.dir")) from error
        return _carry_out(sweep)


def _compose(overrides: Sequence[str], config_dir: str | None) -> Sweep:
    words = [*overrides, "hydra.mode=MULTIRUN", *search_words(config_dir)]
    with initialize_config_module("kvsim.conf", version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    master = hydra.compose_config("config", words, run_mode=RunMode.MULTIRUN, with_log_configuration=True)
    loader = hydra.config_loader
    grid, swept_keys = expand(loader, master)
    points = check_points(loader, master, grid, swept_keys, _terminal())
    context = HydraContext(config_loader=loader, callbacks=Callbacks(master))
    return Sweep(context, master, swept_keys, SweepFolder(str(master.hydra.sweep.dir), points))


def _terminal() -> TextIO | None:
    return sys.stderr if sys.stderr.isatty() else None


def _print_points(sweep: Sweep) -> None:
    print_rows(
        [
            {**point.swept, "folder": point.folder, "finished": found is Earlier.SAME}
            for point, found in _earlier(sweep.folder)
        ],
        sweep.master.output,
    )


def _earlier(folder: SweepFolder) -> list[tuple[Point, Earlier]]:
    """Every point and what its folder holds.

    Raises:
        ConfigError: a run would be overwritten by one with other values of keys that are not in its folder's name.
    """
    earlier = [(point, folder.earlier(point)) for point in folder.points]
    for point, found in earlier:
        if found is Earlier.OTHER_KEYS:
            path = os.path.relpath(folder.path / point.folder)
            raise ConfigError(f"{path}: {found.value} in this run; choose another hydra.sweep.dir=DIR, or delete it")
    return earlier


def _carry_out(sweep: Sweep) -> int:
    """Launch what is not finished, index all, print all."""
    folder, points = sweep.folder, sweep.folder.points
    earlier = _earlier(folder)
    counts = Counter(found for _, found in earlier)
    if kept := counts[Earlier.SAME]:
        log.info("%d of %d runs were finished and are kept", kept, len(points))
    for found in (Earlier.OTHER_VERSION, Earlier.OTHER_INPUTS):
        if counts[found]:
            log.info("%d of %d runs were finished and are run again: %s", counts[found], len(points), found.value)
    open_points = [point for point, found in earlier if found is not Earlier.SAME]
    try:
        folder.prepare(open_points)
    except OSError as error:
        raise ConfigError(unusable(error, "hydra.sweep.dir")) from error
    try:
        if open_points:
            with progress_bar(folder.num_ended, len(points), _terminal()):
                _launch(sweep, open_points)
    finally:
        folder.write_index()
    return _report(sweep)


def _launch(sweep: Sweep, open_points: Sequence[Point]) -> None:
    local = sweep.master.hydra.runtime.choices["hydra/launcher"] in ("basic", "joblib")
    job = functools.partial(
        sweep_job,
        command=["kvsim", "sweep", *sys.argv[1:]],
        swept_keys=sweep.swept_keys,
        parent=os.getpid() if local else None,
    )
    launcher = Plugins.instance().instantiate_launcher(
        hydra_context=sweep.context, task_function=job, config=sweep.master
    )
    # what a configuration warns of has been said when it was checked
    quiet = "hydra.job_logging.root.level=ERROR"
    try:
        launcher.launch(
            [[*point.overrides, f"hydra.sweep.subdir={point.folder}", quiet] for point in open_points],
            initial_job_idx=0,
        )
    except Exception as error:
        _reraise_interruption(error)
        # a worker that was killed, for example: the folders say which runs are left
        log.error("the launcher stopped: %s", " ".join(str(error).split()) or type(error).__name__)
    finally:
        configure_log(sweep.master.hydra.hydra_logging, sweep.master.hydra.verbose)  # a job in this process set its own


def _report(sweep: Sweep) -> int:
    """Print the table, name what failed; 1 if anything did."""
    rows = []
    rejecting = []
    outcomes = sweep.folder.outcomes()
    for outcome in outcomes:
        summary = sweep.folder.summary(outcome.point) if outcome.state == "completed" else {}
        if summary and summary["rejected"] and not summary["completed"]:
            rejecting.append(outcome.point.folder)
        rows.append({**outcome.point.swept, **{metric: summary.get(metric) for metric in SWEEP_METRICS}})
    print_rows(rows, sweep.master.output)
    sys.stdout.flush()
    if rejecting:
        log.warning("every request was rejected in %s; requests.parquet says why", ", ".join(rejecting))
    failed = [outcome for outcome in outcomes if outcome.state == "failed"]
    for outcome in failed:
        log.error("%s failed: %s", outcome.point.folder, outcome.error)
    unfinished = sum(outcome.state == "unfinished" for outcome in outcomes)
    if unfinished:
        log.error("%d of %d runs are unfinished; run the sweep again to go on", unfinished, len(outcomes))
    log.info("results in %s", os.path.relpath(sweep.folder.path))
    return 1 if failed or unfinished else 0


def _reraise_interruption(error: BaseException | None) -> None:
    """Ctrl-C and SIGTERM come out of Hydra's composing as errors of its own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error from None
        error = error.__cause__ or error.__context__
