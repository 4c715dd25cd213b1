"""What the workload tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvsim.protocols import Arrival, Workload

SHARED_TRACES = Path(__file__).parents[2].parent / "shared" / "traces"


@pytest.fixture
def shared_trace() -> Callable[[str], Path]:
    """Name -> path of a real data set; skips where it is missing."""

    def find(name: str) -> Path:
        path = SHARED_TRACES / name
        if not path.is_file():
            pytest.skip(f"no real data set {name}")
        return path

    return find


@pytest.fixture
def drain() -> Callable[[Workload], list[Arrival]]:
    """All requests of a workload."""
    return lambda workload: list(iter(workload.next_arrival, None))
