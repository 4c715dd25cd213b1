"""Runs found in folders: those that finished, and those that did not."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvsim.errors import ConfigError
from kvsim.table import METRICS

LABELS = ("system", "model", "hardware", "workload", "rate", "seed")
MARKS = ("status.json", "summary.json", ".hydra/config.yaml")
"""A folder with any of these is a run's; a killed run leaves but the last."""
LARGEST = 2**63
"""A number that is no run's: none counts so much."""


@dataclass(frozen=True)
class FinishedRun:
    """A completed run.

    Attributes:
        name: its folder, from the folder it was looked for in.
        summary: labels and metrics; its rate is a float or None.
        config: what configured it, nested keys joined by dots.
        version: of kvsim; None where no env.json says so.
    """

    name: str
    path: Path
    summary: Mapping[str, Any]
    config: Mapping[str, Any]
    version: str | None

    @property
    def warmup_s(self) -> float:
        """Time left out of the summary."""
        return float(self.config.get("warmup") or 0)


@dataclass(frozen=True)
class LostRun:
    """A run without results: `state` is failed, killed, not started, unreadable or repeated; `reason` says more."""

    name: str
    state: str
    reason: str
    labels: Mapping[str, Any]


def find_runs(folders: Sequence[Path]) -> tuple[list[FinishedRun], list[LostRun]]:
    """All runs in and below `folders`, each once, in the order of folders and then of their paths.

    Raises:
        ConfigError: a folder is missing or has no run in it, or no run finished.
    """
    finished: list[FinishedRun] = []
    lost: list[LostRun] = []
    seen: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder; give one that kvsim run or kvsim sweep wrote")
        num_runs = 0
        for name, run in _walk(folder):
            num_runs += 1
            if run.resolve() not in seen:
                seen.add(run.resolve())
                found = _load(name, run)
                (finished if isinstance(found, FinishedRun) else lost).append(found)  # type: ignore[arg-type]
        if not num_runs:
            raise ConfigError(f"{folder}: no run in it; give a folder that kvsim run or kvsim sweep wrote")
    if not finished:
        first = lost[0]
        raise ConfigError(
            f"none of {len(lost)} runs in {', '.join(map(str, folders))} finished; {first.name}: {first.state}, "
            f"{first.reason}"
        )
    return finished, lost


def _walk(root: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of every run folder below `root`, and of those that an index names."""
    for parent, folders, files in os.walk(root):
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=_natural)
        path = Path(parent)
        if any((path / mark).exists() for mark in MARKS):
            yield _name(root, path), path
        if "index.json" in files:
            missing = [path / name for name in _indexed(path / "index.json") if not (path / name).exists()]
            yield from ((_name(root, run), run) for run in missing)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """Sorts numbers in names by their value: rate-2 before rate-10."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"([0-9]+)", name)]


def _name(root: Path, run: Path) -> str:
    return (Path(root.resolve().name) / run.relative_to(root)).as_posix()


def _indexed(index: Path) -> list[str]:
    try:
        return [str(entry["folder"]) for entry in json.loads(_content(index))]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []  # of another program


def _load(name: str, path: Path) -> FinishedRun | LostRun:
    if not path.exists():
        return LostRun(name, "not started", "its sweep ended first; run the sweep again to go on", {})
    config: dict[str, Any] = {}
    try:
        config = _config(path)
        if not (path / "status.json").exists():
            reason = "no status.json: the run was killed, or is still under way"
            return LostRun(name, "killed", reason, _labels(config))
        status = json.loads(_content(path / "status.json"))
        if status["state"] != "completed":
            return LostRun(name, str(status["state"]), str(status.get("error")), _labels(config))
        (summary,) = json.loads(_content(path / "summary.json"))
        _check(summary)
        summary["rate"] = None if summary.get("rate") is None else float(summary["rate"])
        run = FinishedRun(name, path, summary, config, _version(path))
        if not 0 <= run.warmup_s < LARGEST:
            raise ValueError("warmup is no time")
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        return LostRun(name, "unreadable", " ".join(f"{type(error).__name__}: {error}".split()), _labels(config))
    return run


def _check(summary: Mapping[str, Any]) -> None:
    """Raise ValueError or TypeError unless the labels and metrics are those of a run."""
    for key, value in summary.items():
        if isinstance(value, int | float) and not abs(value) < LARGEST:  # NaN is not either
            raise ValueError(f"{key} is no finite number")
        metric = key in METRICS and (METRICS[key].style or key == "saturated")
        if metric and not isinstance(value, int | float | None):
            raise TypeError(f"{key} is no number")
    for label in ("system", "model", "hardware", "workload"):
        if not isinstance(summary[label], str):
            raise TypeError(f"{label} is no text")
    for label in ("rate", "seed"):
        if not isinstance(summary.get(label), int | float | None):
            raise TypeError(f"{label} is no number")


def _content(file: Path) -> bytes:
    """What a regular file holds: a pipe would be waited for."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise ValueError(f"{file.name} is no regular file")
    return file.read_bytes()


def _version(path: Path) -> str | None:
    try:
        return str(json.loads(_content(path / "env.json"))["versions"]["kvsim"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _config(path: Path) -> dict[str, Any]:
    """The flattened configuration and the option chosen for every group; empty where none was saved."""
    hydra = _yaml(path / ".hydra" / "hydra.yaml")
    choices = hydra["hydra"]["runtime"]["choices"] if hydra else {}
    options = {group: option for group, option in choices.items() if "/" not in group}
    config = options | dict(_flatten(_yaml(path / ".hydra" / "config.yaml")))
    json.dumps(config, sort_keys=True, default=str)  # raises what makes it unreadable
    return config


def _yaml(file: Path) -> dict[str, Any]:
    import yaml

    if not file.exists():
        return {}
    try:
        return dict(yaml.load(_content(file), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        raise ValueError(f"{file.name} is no YAML: {error}") from error


def _flatten(value: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flatten(item, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def _labels(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration tells of the labels that a summary would have."""
    names = {"system": "system.name", "model": "model.name", "hardware": "hardware.name"}
    return {label: config.get(names.get(label, label)) for label in LABELS if label != "workload"}
