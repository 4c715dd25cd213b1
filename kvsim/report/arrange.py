"""Puts runs in order: what was served on what makes a setting, who served a series, one configuration a point."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kvsim.plots.colours import Style, styles
from kvsim.plots.data import Legend
from kvsim.report.points import RATE, Point, Series, Setting
from kvsim.report.runs import LABELS, FinishedRun, LostRun
from kvsim.table import as_text

Identity = Mapping[str, Any]
T = TypeVar("T")

NO_MATTER = {"seed", "output", "experiment", "engine.fast_forward", "engine.record_plans", "engine.record_blocks"}
"""Keys whose change leaves a run the same experiment."""
TOOLS = ("sweep", "capacity")
"""Groups that say what a command does with its runs."""
COPIES = {"workload.seed", "workload.rate", "workload.duration", "workload.num_requests"}
"""Keys that repeat a top-level one."""
WINDOW = {"duration", "num_requests", "warmup"}
"""Keys that may change along a curve, since a slow rate needs a longer run."""
SETTING = ("model", "hardware", "workload")
POLICY = ("system", "scheduler", "allocator")


class _Known(NamedTuple):
    """A run and all that makes it the experiment it is."""

    run: FinishedRun
    identity: Identity


def arrange(runs: Sequence[FinishedRun]) -> tuple[list[Setting], list[LostRun]]:
    """The settings of all runs, and the runs left out since they repeat another one's configuration and seed."""
    look = styles(run.summary["system"] for run in runs)
    known, repeated = _once([_Known(run, _identity(run)) for run in runs])
    settings = []
    for family in _group(known, lambda one: [one.identity[name] for name in SETTING]):
        axis = _axis(family)
        sections = _group(family, lambda one, axis=axis: _part(one.identity, SETTING, {axis}))  # type: ignore[misc]
        details = _differences([_part(section[0].identity, SETTING, {axis}) for section in sections])
        for section, detail in zip(sections, details, strict=True):
            settings.append(_setting(section, detail, axis, look))
    return settings, repeated


def _identity(run: FinishedRun) -> Identity:
    ignored = NO_MATTER | COPIES
    config = {key: value for key, value in run.config.items() if key not in ignored and not _below(key, TOOLS)}
    labels = {label: run.summary.get(label) for label in LABELS if label != "seed"}
    return config | labels | {"kvsim": run.version}


def _once(known: Iterable[_Known]) -> tuple[list[_Known], list[LostRun]]:
    first: dict[str, _Known] = {}
    repeated = []
    for one in known:
        original = first.setdefault(_key([one.identity, one.run.summary.get("seed")]), one)
        if original is not one:
            reason = f"same configuration, seed and version as {original.run.name}"
            repeated.append(LostRun(one.run.name, "repeated", reason, one.run.summary))
    return list(first.values()), repeated


def _axis(family: Sequence[_Known]) -> str:
    """The rate where there are several; else the one number that varies within a system, if it is one alone."""
    if len({one.run.summary[RATE] for one in family}) > 1:
        return RATE
    varied: set[str] = set()
    for own in _group(family, lambda one: one.identity["system"]):
        varied |= _unequal_keys([one.identity for one in own])
    varied -= WINDOW
    if len(varied) != 1:
        return RATE
    (key,) = varied
    return key if all(_number(one.identity.get(key)) is not None for one in family) else RATE


def _setting(section: Sequence[_Known], detail: str, axis: str, look: Mapping[str, Style]) -> Setting:
    along = WINDOW | {RATE, axis}
    series = []
    for system, style in look.items():
        own = [one for one in section if one.identity["system"] == system]
        curves = _group(own, lambda one: _part(one.identity, (), along))
        for variant, (curve, label) in enumerate(
            zip(curves, _differences([_part(curve[0].identity, (), along) for curve in curves]), strict=True)
        ):
            legend = Legend(f"{system}, {label}" if label else system, style, variant)
            points = [_point(point, axis) for point in _group(curve, lambda one: one.identity)]
            points.sort(key=lambda point: (point.x is None, point.x or 0))
            series.append(Series(legend, system, tuple(points)))
    unequal = {
        key: tuple(dict.fromkeys(_text(one.identity.get(key)) for one in section))
        for key in sorted(_told(_unequal_keys([one.identity for one in section])))
        if key not in (RATE, axis) and not _below(key, POLICY)
    }
    model, hardware, workload = (str(section[0].identity[name]) for name in SETTING)
    return Setting(model, hardware, f"{workload}, {detail}" if detail else workload, axis, tuple(series), unequal)


def _point(point: Sequence[_Known], axis: str) -> Point:
    runs = sorted((one.run for one in point), key=lambda run: (str(type(run.summary.get("seed"))), run.summary["seed"]))
    return Point(_number(point[0].identity.get(axis)), tuple(runs))


def _differences(identities: Sequence[Identity]) -> list[str]:
    """For each, what tells it from the others: ``key=value, ...``; nothing where there is but one."""
    keys = sorted(_told(_unequal_keys(identities)))
    return [", ".join(f"{key}={_text(identity.get(key))}" for key in keys) for identity in identities]


def _unequal_keys(identities: Sequence[Identity]) -> set[str]:
    keys = {key for identity in identities for key in identity}
    return {key for key in keys if len({_key(identity.get(key)) for identity in identities}) > 1}


def _told(keys: Collection[str]) -> list[str]:
    """`keys` without those below another one: a group's option says what its keys would."""
    return [key for key in keys if not any(_below(key, (other,)) and key != other for other in keys)]


def _part(identity: Identity, groups: Sequence[str], without: Collection[str]) -> Identity:
    """The keys of these groups, or of all, less some."""
    return {key: value for key, value in identity.items() if key not in without and (not groups or _below(key, groups))}


def _below(key: str, groups: Sequence[str]) -> bool:
    return key.partition(".")[0] in groups


def _group(items: Iterable[T], key: Callable[[T], object]) -> list[list[T]]:
    """Items with equal keys together, in the order in which they come."""
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(_key(key(item)), []).append(item)
    return list(groups.values())


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else as_text(value)
