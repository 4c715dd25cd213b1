"""Puts runs in order: what was served on what makes a setting, who served a series, one configuration a point."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kvsim.plots.colours import Style, styles, variant_style
from kvsim.plots.data import Legend
from kvsim.report.points import RATE, Point, Series, Setting
from kvsim.report.runs import LABELS, LARGEST, FinishedRun, LostRun
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
POLICY = ("system", "scheduler", "allocator", "attention")
UNRECORDED = "configuration"
"""Key of a run whose configuration was not saved: it differs in that, not in every key that others have."""


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
        parts = [_part(section[0].identity, SETTING, {axis}) for section in sections]
        swept = _told(_unequal_keys(parts))
        for section, detail in zip(sections, _differences(parts), strict=True):
            settings.append(_setting(section, detail, swept, axis, look))
    return settings, repeated


def _identity(run: FinishedRun) -> Identity:
    ignored = NO_MATTER | COPIES
    config = {key: value for key, value in run.config.items() if key not in ignored and not _below(key, TOOLS)}
    labels = {label: run.summary.get(label) for label in LABELS if label != "seed"}
    return config | labels | {"kvsim": run.version} | ({} if run.config else {UNRECORDED: "not recorded"})


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
    """The rate where there are several; else the number with the most values of those that vary within a system.

    Of equals those of the memory come first, then the alphabet decides.
    """
    if len({one.run.summary[RATE] for one in family}) > 1:
        return RATE
    varied: set[str] = set()
    for own in _group(family, lambda one: one.identity["system"]):
        varied |= _unequal_keys([one.identity for one in own])
    values = {
        key: {_number(one.identity.get(key)) for one in family if UNRECORDED not in one.identity}
        for key in _told(varied - WINDOW)
    }
    numeric = [key for key, found in values.items() if None not in found]
    return min(numeric, key=lambda key: (-len(values[key]), not _below(key, ("kv",)), key), default=RATE)


def _setting(
    section: Sequence[_Known], detail: str, apart: Sequence[str], axis: str, look: Mapping[str, Style]
) -> Setting:
    along = WINDOW | {RATE, axis}
    series = []
    swept = dict.fromkeys(apart)
    for system, style in look.items():
        own = [one for one in section if one.identity["system"] == system]
        curves = _group(own, lambda one: _part(one.identity, (), along))
        parts = [_part(curve[0].identity, (), along) for curve in curves]
        swept |= dict.fromkeys(_told(_unequal_keys(parts)))
        for variant, (curve, label) in enumerate(zip(curves, _differences(parts), strict=True)):
            legend = Legend(f"{system}, {label}" if label else system, variant_style(style, variant), variant)
            points = [_point(point, axis) for point in _group(curve, lambda one: one.identity)]
            points.sort(key=lambda point: (point.x is None, point.x or 0))
            series.append(Series(legend, system, tuple(points)))
    unequal = {
        key: tuple(dict.fromkeys(_text(one.identity.get(key)) for one in section))
        for key in _told(_unequal_keys([one.identity for one in section]))
        if key not in (RATE, axis) and not _below(key, POLICY) and not (key in swept and _crossed(section, key))
    }
    model, hardware, workload = (str(section[0].identity[name]) for name in SETTING)
    return Setting(model, hardware, workload, detail, axis, tuple(series), tuple(swept), unequal)


def _crossed(section: Sequence[_Known], key: str) -> bool:
    """Whether every system took every value of the key."""
    systems = _group(section, lambda one: one.identity["system"])
    return len({frozenset(_key(one.identity.get(key)) for one in own) for own in systems}) == 1


def _point(point: Sequence[_Known], axis: str) -> Point:
    runs = sorted((one.run for one in point), key=lambda run: (str(type(run.summary.get("seed"))), run.summary["seed"]))
    return Point(_number(point[0].identity.get(axis)), tuple(runs), point[0].identity)


def _differences(identities: Sequence[Identity]) -> list[str]:
    """For each, what tells it from the others: ``key=value, ...``; nothing where there is but one."""
    keys = _told(_unequal_keys(identities))
    return [
        f"{UNRECORDED} {identity[UNRECORDED]}"
        if UNRECORDED in keys and UNRECORDED in identity
        else ", ".join(f"{key}={_text(identity.get(key))}" for key in keys if key != UNRECORDED)
        for identity in identities
    ]


def _unequal_keys(identities: Sequence[Identity]) -> set[str]:
    recorded = [identity for identity in identities if UNRECORDED not in identity]
    keys = {key for identity in recorded for key in identity}
    unequal = {key for key in keys if len({_key(identity.get(key)) for identity in recorded}) > 1}
    return unequal | ({UNRECORDED} if 0 < len(recorded) < len(identities) else set())


def _told(keys: Collection[str]) -> list[str]:
    """`keys` in order, without those below another one: a group's option says what its keys would."""
    return sorted(key for key in keys if not any(_below(key, (other,)) and key != other for other in keys))


def _part(identity: Identity, groups: Sequence[str], without: Collection[str]) -> Identity:
    """The keys of these groups, or of all, less some."""
    groups = [*groups, UNRECORDED] if groups else groups
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
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
    return float(value) if known else None  # type: ignore[arg-type]


def _text(value: object) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else as_text(value)
