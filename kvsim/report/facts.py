"""What was compared, in words: for the head of a report and for the captions of its figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kvsim.report.points import Point, Setting
from kvsim.report.runs import FinishedRun

Facts = list[tuple[str, str]]
ARRIVALS = {"all_at_once": "arrivals all at once", "trace": "the trace's own times"}
STATES = ("completed", "rejected", "failed", "unfinished")


def facts(settings: Sequence[Setting]) -> Facts:
    """Name and value of everything that all runs of a report are described by."""
    runs = [run for setting in settings for run in setting.runs]
    systems = [series.legend.label for setting in settings for series in setting.series]
    varied = {setting.axis: setting.places for setting in settings if setting.axis != "rate"}
    found = [
        ("Systems", ", ".join(dict.fromkeys(systems))),
        ("Model", _unique(setting.model for setting in settings)),
        ("Hardware", _unique(setting.hardware for setting in settings)),
        ("KV memory", "varied" if any(axis.startswith("kv.") for axis in varied) else _unique(map(_pool, runs))),
        ("Workload", _unique(setting.workload for setting in settings)),
        ("Request rate", _numbers((run.summary["rate"] for run in runs), " req/s", arrivals(runs))),
        *((axis, _numbers(places, "", "null")) for axis, places in varied.items()),
        ("Seeds", ", ".join(_seeds(runs))),
        ("Requests a run", requests(runs)),
        ("Warm-up", warmup(runs)),
        ("Step times", _unique(str(run.config.get("cost", "not recorded")) for run in runs)),
        ("Runs", str(len(runs))),
        ("kvsim", version(runs)),
    ]
    return found


def caption(setting: Setting, points: Iterable[Point]) -> str:
    """Trace, model, device, seeds, number of requests, warm-up and version behind a figure."""
    runs = [run for point in points for run in point.runs]
    seeds = _seeds(runs)
    return (
        f"{setting.title}; seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}; {requests(runs)} requests a run; "
        f"warm-up {warmup(runs)}; kvsim {version(runs)}."
    )


def arrivals(runs: Sequence[FinishedRun]) -> str:
    """How requests arrive in those of the runs that have no rate."""
    without = [run for run in runs if run.summary["rate"] is None]
    return _unique(ARRIVALS.get(run.config.get("workload.arrivals", ""), "arrivals not recorded") for run in without)


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
    return f"{' or '.join(f'{time:g}' for time in times)} s, left out with the requests that arrived in it"


def version(runs: Sequence[FinishedRun]) -> str:
    """Versions of kvsim that simulated the runs."""
    return _unique(run.version or "unknown" for run in runs)


def _seeds(runs: Iterable[FinishedRun]) -> list[str]:
    return list(dict.fromkeys(str(run.summary.get("seed")) for run in runs))


def _pool(run: FinishedRun) -> str:
    slots, blocks, size = (run.config.get(f"kv.{key}") for key in ("num_slots", "num_blocks", "block_size"))
    if slots is not None:
        return f"{slots:,} tokens"
    return "what the hardware holds beside the model" if blocks is None else f"{blocks:,} blocks of {size} tokens"


def _unique(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _numbers(values: Iterable[Any], unit: str, without: str) -> str:
    found = set(values)
    numbers = ", ".join(f"{value:g}" for value in sorted(found - {None}))
    return "; ".join(filter(None, [numbers and numbers + unit, without if None in found else ""]))
