"""The folder of a run. Files appear complete and all at once, ``status.json`` last, or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import io
import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

import kvsim
from kvsim.errors import ConfigError
from kvsim.plan import IntArray
from kvsim.units import NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["int64", "float64", "string"]
Column = NDArray[Any] | Sequence[Any]

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

ROW_GROUP = 32_768
"""Rows of a parquet row group: fixed, so that files do not depend on the chunks in which rows came."""

INPUT_FILES = {"workload.path": "", "model.config": "config.json", "executor.path": "steps.parquet"}
"""Keys that name a file whose content decides the result, and the file that counts where they name a folder."""


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
                _temporary(self.path / name).unlink(missing_ok=True)
            probe = _temporary(self.path / "status.json")
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
                for name, temporary in self._staged.items():
                    temporary.replace(self.path / name)
                self._write_status("completed", None)
            except BaseException as failure:
                self._discard(failure)
                raise

    def _stage(self, name: str) -> Path:
        if name not in RUN_FILES or name in self._staged:
            raise ValueError(f"{name} is no file of a run, or is written twice")
        self._staged[name] = _temporary(self.path / name)
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
            for name, temporary in self._staged.items():
                temporary.unlink(missing_ok=True)
                (self.path / name).unlink(missing_ok=True)
            self._write_status("failed", f"{type(error).__name__}: {error}")

    def _write_status(self, state: str, error: str | None) -> None:
        wall_s, cpu_s = time.perf_counter() - self._wall_start, time.process_time() - self._cpu_start
        write_json(self.path / "status.json", {"state": state, "wall_s": wall_s, "cpu_s": cpu_s, "error": error})


class ParquetStream:
    """Writes a parquet file from chunks of columns; the bytes depend on the rows only, not on the chunks.

    Numbers are packed as differences (integers) or byte planes (floats), then zstd: at these sizes as fast as plain
    lz4 and a third of its size. NaN becomes null, and so does None in a string column.
    """

    def __init__(self, path: Path, schema: Mapping[str, Kind]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._kinds = dict(schema)
        self._schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in schema.items()])
        encodings = {"int64": "DELTA_BINARY_PACKED", "float64": "BYTE_STREAM_SPLIT", "string": "PLAIN"}
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            use_dictionary=False,
            column_encoding={name: encodings[kind] for name, kind in schema.items()},
            write_statistics=False,
            store_schema=False,
        )
        dtypes = {name: object if kind == "string" else np.dtype(kind) for name, kind in schema.items()}
        self._rows: dict[str, NDArray[Any]] = {name: np.empty(ROW_GROUP, dtype) for name, dtype in dtypes.items()}
        self._filled = 0

    def write(self, columns: Mapping[str, Column]) -> None:
        """Append rows, copying them; `columns` has every column of the schema, equally long.

        Raises:
            ValueError: a column is missing, unknown or of another length.
            TypeError: numbers of another kind, such as floats for an int64 column.
        """
        lengths = {len(column) for column in columns.values()}
        if columns.keys() != self._rows.keys() or len(lengths) != 1:
            raise ValueError(
                f"columns {list(columns)} of lengths {sorted(lengths)}; wanted {list(self._rows)}, equally long"
            )
        length = lengths.pop()
        taken = 0
        while taken < length:
            count = min(length - taken, ROW_GROUP - self._filled)
            for name, column in columns.items():
                rows = self._rows[name][self._filled : self._filled + count]
                part = column[taken : taken + count]
                texts = rows.dtype == np.object_  # a str array would lose trailing NULs
                np.copyto(rows, np.asarray(part, dtype=np.object_) if texts else part, casting="same_kind")
            taken += count
            self._filled += count
            if self._filled == ROW_GROUP:
                self._flush()

    def close(self) -> None:
        """Write what is left and finish the file."""
        try:
            self._flush()
        finally:
            self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._filled:
            return
        arrays = [_arrow(self._rows[name][: self._filled], kind) for name, kind in self._kinds.items()]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema), row_group_size=ROW_GROUP)
        self._filled = 0


class PlanLog:
    """Writes what every step scheduled, one JSON line a step, gzip with neither time nor name in its header."""

    def __init__(self, path: Path) -> None:
        import gzip

        self._file: BinaryIO = path.open("wb")
        packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=self._file, mtime=0)
        self._lines = io.BufferedWriter(packed, 1 << 16)

    def write(
        self,
        step: int,
        start_ns: int,
        request_ids: IntArray,
        num_tokens: IntArray,
        preempted: Sequence[int],
        finished: Sequence[int],
    ) -> None:
        """Append step `step`: the tokens each request was given, in plan order, who was preempted and who finished."""
        line = {
            "step": step,
            "start_s": start_ns / NS_PER_S,
            "scheduled": np.column_stack((request_ids, num_tokens)).tolist(),
            "preempted": list(preempted),
            "finished": list(finished),
        }
        self._lines.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Finish the file."""
        try:
            self._lines.close()
        finally:
            self._file.close()


def environment(config: Mapping[str, object], command: Sequence[str]) -> dict[str, object]:
    """What ``env.json`` holds: versions, platform, the command, digests of `config`, and its ``engine`` keys.

    ``config_digest`` takes the content of the `INPUT_FILES` for their paths: where it is the same, so is the result.
    ``keys_digest`` is of the keys as they are, and ``inputs`` has the SHA-256 of every input file.
    """
    from importlib import metadata

    versions: dict[str, str | None] = {"python": platform.python_version(), "kvsim": kvsim.__version__}
    for package in ("numpy", "simpy", "pyarrow", "hydra-core"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    inputs = _input_digests(config)
    return {
        "versions": versions,
        "platform": platform.platform(),
        "command": list(command),
        "config_digest": _digest(_with_inputs(config, inputs)),
        "keys_digest": _digest(config),
        "inputs": inputs,
        "engine": config.get("engine", {}),
    }


def _input_digests(config: Mapping[str, object]) -> dict[str, str]:
    """The SHA-256 of every input file; a pipe, which can be read only once, has none."""
    digests = {}
    for key, inner in INPUT_FILES.items():
        group, _, name = key.partition(".")
        node = config.get(group)
        value = node.get(name) if isinstance(node, Mapping) else None
        if not isinstance(value, str):
            continue
        file = Path(value).expanduser()
        file = file / inner if file.is_dir() else file
        if file.is_file():
            stat = file.stat()
            digests[key] = _file_digest(file.resolve(), stat.st_size, stat.st_mtime_ns)
    return digests


@functools.lru_cache
def _file_digest(file: Path, size: int, mtime_ns: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _with_inputs(config: Mapping[str, object], inputs: Mapping[str, str]) -> Mapping[str, object]:
    for key, digest in inputs.items():
        group, _, name = key.partition(".")
        config = {**config, group: {**cast("Mapping[str, object]", config[group]), name: digest}}
    return config


def _digest(config: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()


def write_json(path: Path, value: object) -> None:
    """Write `value` to `path` under a temporary name and rename it, so that no reader sees half a file."""
    temporary = _temporary(path)
    try:
        temporary.write_text(to_json(value))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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


def _arrow(values: NDArray[Any], kind: Kind) -> pa.Array:
    """An arrow array over `values`. From raw buffers, since `pyarrow.array` imports pandas (0.3 s)."""
    import pyarrow as pa

    if kind == "string":
        missing = np.array([text is None for text in values], dtype=np.bool_)
        texts = [(text or "").encode() for text in values]
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        buffers = [pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    else:
        missing = np.isnan(values) if kind == "float64" else np.zeros(0, dtype=np.bool_)
        buffers = [pa.py_buffer(values)]
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(getattr(pa, kind)(), len(values), [valid, *buffers])


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")
