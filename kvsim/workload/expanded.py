"""The bytes of a file, expanded if they are gzip, up to a limit."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvsim.errors import TraceError

GZIP_MAGIC = b"\x1f\x8b"
MAX_BYTES = 4 << 30
"""Default limit of an expanded file."""

BUFFER_BYTES = 1 << 20


class CappedFile(io.RawIOBase):
    """Reads another file and refuses to give more than `max_bytes`.

    Raises:
        TraceError: there is more.
    """

    def __init__(self, file: io.BufferedIOBase, path: Path, max_bytes: int) -> None:
        self._file, self._path, self._max_bytes, self._read = file, path, max_bytes, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill some of `buffer`; the number of bytes, 0 at the end."""
        data = self._file.read(len(buffer))
        self._read += len(data)
        if self._read > self._max_bytes:
            raise too_large(self._path, self._max_bytes)
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def open_expanded(path: Path, max_bytes: int) -> Iterator[CappedFile]:
    """The file's bytes, expanded if they are gzip."""
    packed = is_gzip(path)
    with gzip.open(path) if packed else path.open("rb") as file:
        yield CappedFile(file, path, max_bytes)


def is_gzip(path: Path) -> bool:
    """Whether the file begins as gzip does."""
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


def check_file(path: Path) -> None:
    """TraceError unless `path` is a regular file with something in it; a pipe could be read only once."""
    if not path.exists():
        problem = "standard input cannot be read" if str(path) == "-" else "no such file"
        raise TraceError(f"{path}: {problem}; give the path of a trace")
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "is a pipe or device, and is not read"
        raise TraceError(f"{path}: {problem}; give the path of a regular file")
    if not path.stat().st_size:
        raise TraceError(f"{path}: is empty; a trace has a header or records")


def too_large(path: Path, max_bytes: int) -> TraceError:
    """The error for a file beyond the limit."""
    return TraceError(
        f"{path}: holds more than {max_bytes} bytes when expanded; split it or raise workload.max_bytes "
        "(--max-bytes of kvsim trace)"
    )


def one_line(error: BaseException) -> str:
    """First line of an error's text, its kind where it has none."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]
