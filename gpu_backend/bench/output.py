"""Measurements as they come in on the screen, then as a CSV file with what they depend on beside it."""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import torch

from gpu_backend.device import environment
from kvsim.atomic import replacing
from kvsim.cli.files import check_writable
from kvsim.errors import ConfigError

Record = Mapping[str, object]

WIDTHS = {"peer": 16, "backend": 17}  # of names, on a screen

HIDDEN = ("phase", "num_q_heads", "num_kv_heads", "head_dim")  # columns of the file that a screen has no room for


def printed(columns: Sequence[str], records: Iterable[Record]) -> Iterator[Record]:
    """The records, each printed as soon as it is there."""
    widths = {column: WIDTHS.get(column, max(10, len(column))) for column in columns if column not in HIDDEN}
    print(" ".join(f"{column:>{width}}" for column, width in widths.items()))
    for record in records:
        print(" ".join(f"{record[column]!s:>{width}}" for column, width in widths.items()), flush=True)
        yield record


def check_output(path: Path) -> Path:
    """The path of a CSV file that can be written, and the JSON file beside it too.

    Raises:
        ConfigError: one of them cannot.
    """
    if path.suffix == ".json":
        raise ConfigError(f"--output={path}: is the name of the JSON file beside it; give for example kernels.csv")
    check_writable("--output", path.with_suffix(".json"))
    return check_writable("--output", path)


def write(path: Path, columns: Sequence[str], records: Iterable[Record], facts: Record) -> None:
    """The CSV file at `path`, and `facts` under the same name as JSON."""
    with replacing(path) as staged, staged.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    with replacing(path.with_suffix(".json")) as staged:
        staged.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def measured_with(device: torch.device) -> dict[str, object]:
    """What the figures depend on."""
    return {
        **environment(device),
        "python": platform.python_version(),
        "flashinfer-python": _version("flashinfer-python"),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
