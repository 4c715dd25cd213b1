"""Measurements as they come in on the screen, then as a CSV file with what they depend on beside it."""

from __future__ import annotations

import csv
import json
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import torch

from kvsim.atomic import replacing

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


def write(path: Path, columns: Sequence[str], records: Iterable[Record], facts: Record) -> None:
    """The CSV file at `path`, and `facts` under the same name as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as staged, staged.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    with replacing(path.with_suffix(".json")) as staged:
        staged.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def environment(device: torch.device) -> dict[str, object]:
    """What the figures depend on."""
    return {
        "device": device_name(device),
        "driver": _driver() if device.type == "cuda" else None,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "triton", "flashinfer-python")},
    }


def device_name(device: torch.device) -> str:
    """The card's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _driver() -> str | None:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None
