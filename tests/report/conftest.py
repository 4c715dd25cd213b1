"""Small real runs, made once: two systems, two rates, two seeds; and copies of single ones to spoil."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SYSTEMS = ("orca_max", "vllm_paper")
KVSIM = "import sys; from kvsim.cli import main; sys.exit(main())"


def sweep(folder: Path, *overrides: str) -> Path:
    words = ["sweep", "cost=paper_a100", "kv.num_slots=15728", *overrides, f"hydra.sweep.dir={folder}"]
    subprocess.run([sys.executable, "-c", KVSIM, *words], check=True, capture_output=True, cwd=folder.parent)
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep folder; leave it as it is."""
    folder = tmp_path_factory.mktemp("report") / "sweep"
    return sweep(folder, f"system={','.join(SYSTEMS)}", "rate=1,4", "seed=0,1", "duration=60", "warmup=10")


@pytest.fixture
def one(runs: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copies a run into a fresh folder, under a name."""

    def copy(name: str) -> Path:
        target = tmp_path / "copies" / name
        shutil.copytree(runs / "system-vllm_paper+rate-1+seed-0", target)
        return target

    return copy
