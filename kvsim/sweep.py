"""The folder of a sweep: one run folder a point, ``index.json`` over them, and which of them are finished."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import kvsim
from kvsim.results import folder_lock, write_json
from kvsim.run import Label

MAX_NAME = 120
"""Characters of a run's folder name."""

UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
        overrides: what composes its configuration.
        swept: the keys that tell it from the other points, and their values.
        config_digest, keys_digest: as in its ``env.json``.
    """

    overrides: tuple[str, ...]
    swept: Mapping[str, Label]
    config_digest: str
    keys_digest: str

    @property
    def folder(self) -> str:
        """Its folder's name, ``system-orca_max+rate-1.5``; with a digest where that is too long or has odd characters.

        No character of it means anything to a shell or to Hydra.
        """
        parts = [f"{key}-{_text(value)}" for key, value in self.swept.items()] or ["run"]
        safe_parts = [UNSAFE.sub("_", part) for part in parts]
        name = "+".join(safe_parts)
        if parts == safe_parts and len(name) <= MAX_NAME:
            return name
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]
        return f"{name[: MAX_NAME - 9]}-{digest}"

    def __str__(self) -> str:
        return " ".join(f"{key}={_text(value)}" for key, value in self.swept.items())


def _text(value: Label) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


class Earlier(Enum):
    """What a point's folder holds from an earlier sweep; the value says why a completed run does not count."""

    NOTHING = "no completed run"
    SAME = "the completed run of this very configuration"
    OTHER_VERSION = "kvsim had another version"
    OTHER_INPUTS = "an input file has changed"
    OTHER_KEYS = "keys that are not swept had other values"


@dataclass(frozen=True)
class Outcome:
    """What became of a point's run: ``completed``, ``failed``, or ``unfinished`` where no status says how it ended."""

    point: Point
    state: str
    error: str | None


class SweepFolder:
    """The runs of `points` below `path`, which need not exist yet."""

    def __init__(self, path: str | os.PathLike[str], points: Sequence[Point]) -> None:
        self.path = Path(path)
        self.points = points

    def earlier(self, point: Point) -> Earlier:
        """What its folder holds."""
        if self._outcome(point).state != "completed":
            return Earlier.NOTHING
        env = _read(self.path / point.folder / "env.json")
        if env.get("versions", {}).get("kvsim") != kvsim.__version__:
            return Earlier.OTHER_VERSION
        if env.get("config_digest") == point.config_digest:
            return Earlier.SAME
        return Earlier.OTHER_INPUTS if env.get("keys_digest") == point.keys_digest else Earlier.OTHER_KEYS

    def lock(self) -> AbstractContextManager[None]:
        """Make the folder and keep other sweeps out of it.

        Raises:
            FolderInUseError: another sweep is in it.
            OSError: the folder cannot be made.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        return folder_lock(self.path)

    def prepare(self, points: Sequence[Point]) -> None:
        """Forget how earlier runs of these points ended.

        Raises:
            OSError: the folder cannot be written to.
        """
        (self.path / "index.json").unlink(missing_ok=True)
        for point in points:
            (self.path / point.folder / "status.json").unlink(missing_ok=True)

    def num_ended(self) -> int:
        """How many runs ended, well or not."""
        return sum((self.path / point.folder / "status.json").exists() for point in self.points)

    def outcomes(self) -> list[Outcome]:
        """How every point ended, in their order."""
        return [self._outcome(point) for point in self.points]

    def summary(self, point: Point) -> dict[str, object]:
        """The summary of its completed run."""
        (summary,) = json.loads((self.path / point.folder / "summary.json").read_text())
        return dict(summary)

    def write_index(self) -> None:
        """Write ``index.json``: a list of folder, swept keys, state, error and configuration digest of every run."""
        index = [
            {
                "folder": outcome.point.folder,
                "swept": outcome.point.swept,
                "state": outcome.state,
                "error": outcome.error,
                "config_digest": outcome.point.config_digest,
            }
            for outcome in self.outcomes()
        ]
        write_json(self.path / "index.json", index)

    def _outcome(self, point: Point) -> Outcome:
        status = _read(self.path / point.folder / "status.json")
        return Outcome(point, str(status.get("state", "unfinished")), status.get("error"))


def _read(path: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is none that can be read."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
