"""The folder of a run. Files appear complete and all at once, ``status.json`` last, or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import numpy as np

from kvsim.atomic import replacing, temporary
from kvsim.errors import ConfigError
from kvsim.tables import Kind, ParquetStream, PlanLog

if TYPE_CHECKING:
    pass

RUN_FILES = (
    "status.json",
    "summary.json",
    "env.json",
    "requests.parquet",
    "steps.parquet",
    "memory.parquet",
    "blocks.parquet",
    "plans.jsonl.gz",
)
"""Files a run may write; those of an earlier run go when a new one opens the folder."""

BLOCK_COLUMNS: dict[str, Kind] = {"block": "int64", "start_s": "float64", "end_s": "float64", "owner": "int64"}
"""Columns of ``blocks.parquet``: request `owner` held block `block` from `start_s` to `end_s`."""


class _Stream(Protocol):
    def close(self) -> None: ...


StreamT = TypeVar("StreamT", bound=_Stream)


class FolderInUseError(ConfigError):
    """Another process writes to the folder."""


@contextlib.contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """Inside, this folder, which exists, is locked, on file systems that can. No file is left; the lock ends with us.

    Raises:
        FolderInUseError: somebody else holds it.
    """
    directory = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderInUseError(
                f"{path} is in use by another kvsim; wait until it has ended or choose another folder"
            ) from error
        except OSError:
            pass
        yield
    finally:
        os.close(directory)


def holds_run(path: Path) -> bool:
    """Whether a run was written to this folder, finished or not."""
    if (path / ".hydra").is_dir():
        return True
    try:
        status = json.loads((path / "status.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(status, dict) and status.keys() >= {"state", "wall_s", "cpu_s"}


class RunFolder:
    """Context manager that writes the files of one run.

    Everything is written under a temporary name. A normal exit closes all streams, renames the files and then writes
    ``status.json`` with state ``completed``; an exception removes them and leaves ``status.json`` with state
    ``failed`` and the error. A folder without ``status.json`` is of a run that is under way or was killed. Entering
    a folder that holds an earlier run removes that run's files, status first, so two runs never mix; nor can two write
    at once.

    Raises:
        ConfigError: the folder cannot be made or written to, or holds such files of somebody else.
        FolderInUseError: another run is being written to it; its files are left alone.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._staged: dict[str, Path] = {}
        self._streams: list[_Stream] = []
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._make_empty(stack)
            self._lock = stack.pop_all()
        self._wall_start, self._cpu_start = time.perf_counter(), time.process_time()
        return self

    def _make_empty(self, lock: contextlib.ExitStack) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.enter_context(folder_lock(self.path))
            self._refuse_foreign_files()
            for name in RUN_FILES:
                (self.path / name).unlink(missing_ok=True)
                temporary(self.path / name).unlink(missing_ok=True)
            probe = temporary(self.path / "status.json")
            probe.touch()
            probe.unlink()
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"cannot write to the run folder {self.path}: {reason}; choose another one") from error

    def _refuse_foreign_files(self) -> None:
        names = [name for name in RUN_FILES if os.path.lexists(self.path / name)]
        if names and not holds_run(self.path):
            raise ConfigError(f"{self.path} holds a {names[0]} that no kvsim run wrote; choose another folder")

    def parquet(self, name: str, schema: Mapping[str, Kind]) -> ParquetStream:
        """A new parquet file of the run with these columns."""
        return self._open(ParquetStream(self._stage(name), schema))

    def plans(self) -> PlanLog:
        """The decision log ``plans.jsonl.gz``."""
        return self._open(PlanLog(self._stage("plans.jsonl.gz")))

    def write_summary(self, metrics: Mapping[str, object]) -> None:
        """Write ``summary.json``: a list of one flat dict, as `vllm bench sweep plot` reads it."""
        self._stage("summary.json").write_text(to_json([metrics]))

    def write_env(self, env: Mapping[str, object]) -> None:
        """Write ``env.json``, see `environment`."""
        self._stage("env.json").write_text(to_json(env))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._lock:
            if error is not None:
                self._discard(error)
                return
            try:
                for stream in self._streams:
                    stream.close()
                for name, staged in self._staged.items():
                    staged.replace(self.path / name)
                self._write_status("completed", None)
            except BaseException as failure:
                self._discard(failure)
                raise

    def _stage(self, name: str) -> Path:
        if name not in RUN_FILES or name in self._staged:
            raise ValueError(f"{name} is no file of a run, or is written twice")
        self._staged[name] = temporary(self.path / name)
        return self._staged[name]

    def _open(self, stream: StreamT) -> StreamT:
        self._streams.append(stream)
        return stream

    def _discard(self, error: BaseException) -> None:
        # the error that brought us here counts; a full disk must not hide it
        for stream in self._streams:
            with contextlib.suppress(Exception):
                stream.close()
        with contextlib.suppress(OSError):
            for name, staged in self._staged.items():
                staged.unlink(missing_ok=True)
                (self.path / name).unlink(missing_ok=True)
            self._write_status("failed", f"{type(error).__name__}: {error}")

    def _write_status(self, state: str, error: str | None) -> None:
        wall_s, cpu_s = time.perf_counter() - self._wall_start, time.process_time() - self._cpu_start
        write_json(self.path / "status.json", {"state": state, "wall_s": wall_s, "cpu_s": cpu_s, "error": error})


def write_json(path: Path, value: object) -> None:
    """Write `value` to `path` under a temporary name and rename it, so that no reader sees half a file."""
    with replacing(path) as staged:
        staged.write_text(to_json(value))


def to_json(value: object) -> str:
    """`value` as indented JSON. NumPy numbers become plain ones, NaN and infinities null."""
    return json.dumps(_plain(value), indent=2, allow_nan=False) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
