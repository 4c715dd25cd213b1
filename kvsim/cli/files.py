"""Files that a command is to write, checked before it works for them."""

from __future__ import annotations

from pathlib import Path

from kvsim.atomic import temporary
from kvsim.errors import ConfigError


def check_writable(name: str, path: Path) -> Path:
    """`path`, where a file can be written; `name` is what sets it.

    Raises:
        ConfigError: there is no such folder, it cannot be written to, or something else than a file is there.
    """
    try:
        if not path.parent.is_dir():
            raise ConfigError(f"{name}={path}: there is no folder {path.parent}; make it, or choose another file")
        if path.exists() and not path.is_file():
            raise ConfigError(f"{name}={path}: is a folder or device, no file; choose another file")
        probe = temporary(path)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"{name}={path}: {error.strerror}; choose another file") from error
    return path
