"""Files that appear complete or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def temporary(path: Path) -> Path:
    """The hidden name beside `path` under which it is written."""
    return path.with_name(f".{path.name}.tmp")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name that takes `path`'s place at the end; it goes if that is not reached."""
    staged = temporary(path)
    try:
        yield staged
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)
