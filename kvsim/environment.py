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

INPUT_FILES: dict[str, tuple[str, ...]] = {
    "workload.path": (),
    "model.config": ("config.json",),
    "executor.path": ("steps.parquet",),
    "executor.weights": ("config.json", "*.safetensors"),
}
"""Keys that name a file whose content decides the result, and the files that count where they name a folder."""


def environment(
    config: Mapping[str, object], command: Sequence[str], executor: Mapping[str, str | None] | None = None
) -> dict[str, object]:
    """What ``env.json`` holds: versions, platform, the command, digests of `config`, and its ``engine`` keys.

    ``executor`` is what measurements depend on besides, see `Run.environment`; empty where nothing is measured.
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
        "executor": dict(executor or {}),
    }


def _input_digests(config: Mapping[str, object]) -> dict[str, str]:
    """The SHA-256 of every input, of several files that of theirs; a pipe, which can be read only once, has none."""
    digests = {}
    for key, inner in INPUT_FILES.items():
        group, _, name = key.partition(".")
        node = config.get(group)
        value = node.get(name) if isinstance(node, Mapping) else None
        if not isinstance(value, str):
            continue
        path = Path(value).expanduser()
        files = [file for pattern in inner for file in sorted(path.glob(pattern))] if path.is_dir() else [path]
        found = {file.name: _content_digest(file) for file in files if file.is_file()}
        if found:
            digests[key] = _digest(found) if len(found) > 1 else found.popitem()[1]
    return digests


def _content_digest(file: Path) -> str:
    stat = file.stat()
    return _file_digest(file.resolve(), stat.st_size, stat.st_mtime_ns)


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
