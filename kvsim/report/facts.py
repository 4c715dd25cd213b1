"""What was compared, in words: for the head of a report and for the captions of its figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kvsim.report.points import RATE, Point, Setting
from kvsim.report.runs import FinishedRun

Facts = list[tuple[str, str]]
ARRIVALS = {"all_at_once": "arrivals all at once", "trace": "the trace's own times"}
SETTING_NAMES = ("model", "hardware", "workload")
STATES = ("completed", "rejected", "failed", "unfinished")
MOST_NAMED = 3
"""Names in a headline; more are counted."""
MOST_LISTED = 6
"""Values in a cell; of more the first and the last are told."""


def facts(settings: Sequence[Setting]) -> Facts:
    """Name and value of everything that all runs of a report are described by."""
    runs = [run for setting in settings for run in setting.runs]
    varied = {setting.axis: setting.places for setting in settings if setting.axis != "rate"}
    found = [
        ("Systems", ", ".join(_systems(settings))),
        ("Model", _unique(setting.model for setting in settings)),
        ("Hardware", _unique(setting.hardware for setting in settings)),
        ("KV memory", _pools(runs)),
        ("Workload", _unique(setting.workload for setting in settings)),
        ("Request rate", _numbers((run.summary["rate"] for run in runs), " req/s", arrivals(runs))),
        *((axis, _numbers(places, "", "null")) for axis, places in varied.items()),
        ("Seeds", _listed(_seeds(runs))),
        ("Requests a run", requests(runs)),
        ("Warm-up", warmup(runs)),
        ("Step times", _unique(map(step_times, runs))),
        ("Runs", str(len(runs))),
        ("kvsim", version(runs)),
    ]
    return found


def headline(settings: Sequence[Setting]) -> str:
    """Which systems were compared and what was varied, in a line."""
    axes = dict.fromkeys(setting.axis for setting in settings if len(setting.places) > 1)
    names = ["request rate" if axis == RATE else axis for axis in axes]
    names += [label for label in SETTING_NAMES if len({getattr(setting, label) for setting in settings}) > 1]
    names += [key for key in swept_keys(settings) if key not in axes]
    return _named(_systems(settings)) + (f" over {_named(names)}" if names else "")


def swept_keys(settings: Sequence[Setting]) -> list[str]:
    """The axes but the rate, and other keys that tell settings or series apart."""
    axes = {setting.axis: None for setting in settings if setting.axis != RATE}
    return list(axes | dict.fromkeys(key for setting in settings for key in setting.swept if key not in SETTING_NAMES))


def _systems(settings: Sequence[Setting]) -> list[str]:
    return list(dict.fromkeys(series.system for setting in settings for series in setting.series))


def _named(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def caption(setting: Setting, points: Iterable[Point]) -> str:
    """Trace, model, device, seeds, number of requests, warm-up and version behind a figure."""
    runs = [run for point in points for run in point.runs]
    seeds = _seeds(runs)
    return (
        f"{setting.title}; seed{'s' * (len(seeds) > 1)} {_listed(seeds)}; {requests(runs)} requests a run; "
        f"warm-up {warmup(runs)}; kvsim {version(runs)}."
    )


def arrivals(runs: Sequence[FinishedRun]) -> str:
    """How requests arrive in those of the runs that have no rate."""
    without = [run for run in runs if run.summary["rate"] is None]
    return _unique(ARRIVALS.get(str(run.config.get("workload.arrivals")), "arrivals not recorded") for run in without)


def requests(runs: Sequence[FinishedRun]) -> str:
    """How many requests the metrics of each run are about."""
    counts = [sum(int(run.summary.get(state) or 0) for state in STATES) for run in runs]
    least, most = min(counts), max(counts)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def warmup(runs: Sequence[FinishedRun]) -> str:
    """The rule that leaves requests and time out."""
    times = sorted({run.warmup_s for run in runs})
    if times == [0]:
        return "none"
    return f"{_listed([f'{time:g}' for time in times], ' or ')} s, left out with the requests that arrived in it"


def step_times(run: FinishedRun) -> str:
    """The cost model that predicted them, or the executor that knew them otherwise."""
    executor = run.summary.get("executor")
    if executor and run.summary.get("cost") is None:
        return f"executor {executor}"
    return str(run.config.get("cost", "not recorded"))


def version(runs: Sequence[FinishedRun]) -> str:
    """Versions of kvsim that simulated the runs."""
    return _unique(run.version or "unknown" for run in runs)


def _seeds(runs: Iterable[FinishedRun]) -> list[str]:
    return list(dict.fromkeys(str(run.summary.get("seed")) for run in runs))


def _pools(runs: Sequence[FinishedRun]) -> str:
    """The least and the most of each kind of pool."""
    slots, blocks, sizes = (
        [value for run in runs if isinstance(value := run.config.get(f"kv.{key}"), int)]
        for key in ("num_slots", "num_blocks", "block_size")
    )
    found = [f"{_range(slots)} tokens"] if slots else []
    found += [f"{_range(blocks)} blocks of {_range(sizes)} tokens"] if blocks and sizes else []
    default = any(run.config.get("kv.num_slots") is None and run.config.get("kv.num_blocks") is None for run in runs)
    return "; ".join([*found, *(["what the hardware holds beside the model"] if default else [])])


def _range(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,}–{most:,}"


def _unique(texts: Iterable[str]) -> str:
    return _listed(list(dict.fromkeys(texts)), "; ")


def _listed(texts: Sequence[str], between: str = ", ") -> str:
    if len(texts) <= MOST_LISTED:
        return between.join(texts)
    return f"{between.join([*texts[:2], '…', texts[-1]])} ({len(texts)})"


def _numbers(values: Iterable[Any], unit: str, without: str) -> str:
    found = set(values)
    numbers = _listed([f"{value:g}" for value in sorted(found - {None})])
    return "; ".join(filter(None, [numbers and numbers + unit, without if None in found else ""]))
