"""Digests of what each system decides, stores and delivers on one fixed scenario.

A change that should not alter results leaves them alone. One that should says why, and refreshes them with
``PYTHONPATH=. python -m tests.golden.test_digests``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from tests.harness import SYSTEMS, Log, simulate, tight

DIGESTS = Path(__file__).with_name("digests.json")
SEED = 23


def simulated(system: str, fast_forward: bool = True) -> Log:
    limits, jobs = tight(system, SEED, count=60)
    return simulate(limits, jobs, fast_forward=fast_forward)


def digests(log: Log) -> dict[str, str | int]:
    """One digest a table, and two counts that say what kind of run it was."""
    return {
        "steps": len(log.steps),
        "preemptions": sum(len(step.preempted) for step in log.steps),
        "plans": _sha256([step._replace(tables=None) for step in log.steps]),
        "memory": _sha256([list(classes.values()) for classes in log.memory]),
        "requests": _sha256([astuple(outcome) for outcome in log.requests.values()]),
        "summary": _sha256({name: value for name, value in log.summary.items() if not isinstance(value, float)}),
    }


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()


@pytest.mark.parametrize("fast_forward", [True, False], ids=["jumping", "stepping"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_results_are_unchanged(system: str, fast_forward: bool) -> None:
    assert digests(simulated(system, fast_forward)) == json.loads(DIGESTS.read_text())[system]


def test_every_system_has_its_own_digest() -> None:
    golden = json.loads(DIGESTS.read_text())
    assert list(golden) == list(SYSTEMS)
    assert len({entry["plans"] for entry in golden.values()}) == len(SYSTEMS)


if __name__ == "__main__":
    DIGESTS.write_text(json.dumps({system: digests(simulated(system)) for system in SYSTEMS}, indent=2) + "\n")
