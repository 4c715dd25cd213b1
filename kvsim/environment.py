"""What a run depended on: versions, command, configuration and input files, as digests."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import kvsim

INPUT_FILES = {"workload.path": "", "model.config": "config.json", "executor.path": "steps.parquet"}
"""Keys that name a file whose content decides the result, and the file that counts where they name a folder."""


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
