"""What is compared, by how much it may differ, and whether it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kvsim.latency import Sample
from kvsim.plan import IntArray


class Verdict(StrEnum):
    """How a value of the simulation compares."""

    PASS = "pass"
    NOISY = "noisy"
    MISS = "MISS"
    REPORTED = "reported"


MOST_NOISE = 3.0
"""Times the tolerance that repeated runs may differ by for a miss to be laid to them."""


class Tolerance(NamedTuple):
    """Largest relative errors that pass."""

    step: float
    throughput: float
    median: float
    p99: float


class Case(NamedTuple):
    """A system under a load, requests a second."""

    system: str
    load: str
    rate: float


class Setting(NamedTuple):
    """What a case was measured with; results of the same system, load and setting replace each other.

    Attributes:
        cost: of the simulated side.
        kv_num_blocks: of the pool.
        num_requests: of a run.
        device: that measured; None: it was simulated too.
    """

    model: str
    hardware: str
    workload: str
    cost: str
    kv_num_blocks: int
    num_requests: int
    device: str | None


@dataclass(frozen=True)
class Row:
    """A quantity of one case.

    Attributes:
        check: ``closed`` loop, plan ``replay`` or ``parity``.
        simulated, measured: its values, the measured one a mean of repeated runs; None: undefined, or an error itself.
        error: relative to the measured value; None where that cannot be said.
        spread: how far the repeated runs lie apart, relative to their mean.
        tolerance: largest error that passes; None: only reported.
    """

    system: str
    load: str
    rate: float
    check: str
    quantity: str
    simulated: float | None
    measured: float | None
    error: float | None
    spread: float
    tolerance: float | None

    @property
    def verdict(self) -> Verdict:
        """Past tolerance it is noisy if the repeated runs lie as far apart, but not so far that they say nothing."""
        if self.tolerance is None:
            return Verdict.REPORTED
        if self.error is None:
            return Verdict.MISS
        if abs(self.error) <= self.tolerance:
            return Verdict.PASS
        return Verdict.NOISY if abs(self.error) <= self.spread <= MOST_NOISE * self.tolerance else Verdict.MISS


class StepError(NamedTuple):
    """Of predicted step times: absolute relative error, plain and weighted by time, its 95th percentile, the bias."""

    mean: float
    weighted: float
    p95: float
    bias: float

    @classmethod
    def of(cls, predicted: IntArray, measured: IntArray) -> StepError:
        """Errors of [steps] predicted ns against [steps] measured ns."""
        difference = predicted - measured
        relative = np.abs(difference / measured)
        total = float(measured.sum())
        return cls(
            float(relative.mean()),
            float(np.abs(difference).sum()) / total,
            float(np.percentile(relative, 95)),
            float(difference.sum()) / total,
        )


QUANTITIES = {
    "output_throughput": "throughput",
    "mean_normalized_latency": "median",
    "median_normalized_latency": "median",
    "p90_normalized_latency": None,
    "p99_normalized_latency": "p99",
    **{
        f"{statistic}_{name}": tolerance
        for name in ("ttft_ms", "tpot_ms")
        for statistic, tolerance in {"mean": None, "median": "median", "p90": None, "p99": "p99"}.items()
    },
}
"""What is compared end to end, and the field of `Tolerance` that applies; None: only reported."""


def end_to_end(folder: Path, summary: Mapping[str, object]) -> dict[str, float | None]:
    """The `QUANTITIES` of a run in `folder`."""
    import pyarrow.parquet as pq

    columns = ["arrival_s", "finished_s", "num_output_tokens", "state"]
    table = pq.read_table(folder / "requests.parquet", columns=columns).to_pydict()
    rows = zip(*(table[name] for name in columns), strict=True)
    latencies = [(end - start) / tokens for start, end, tokens, state in rows if state == "completed"]
    sample = Sample.of(np.array(latencies))
    normalized = {f"{name}_normalized_latency": sample.percentile(q) for name, q in PERCENTILES.items()}
    found = {**summary, **normalized}
    return {name: None if found[name] is None else float(str(found[name])) for name in QUANTITIES}


PERCENTILES = {"median": 50, "p90": 90, "p99": 99}


def compare(
    case: Case, simulated: Mapping[str, float | None], measured: Sequence[Mapping[str, float | None]], limits: Tolerance
) -> list[Row]:
    """A row for each of the `QUANTITIES`; `measured` is of the repeated runs."""
    rows = []
    for name, limit in QUANTITIES.items():
        known = [value for run in measured if (value := run[name]) is not None]
        mean = sum(known) / len(known) if known else None
        spread = (max(known) - min(known)) / mean if mean else 0.0
        tolerance = None if limit is None else float(getattr(limits, limit))
        error = _error(simulated[name], mean)
        rows.append(Row(*case, "closed", name, simulated[name], mean, error, spread, tolerance))
    return rows


def _error(simulated: float | None, measured: float | None) -> float | None:
    if simulated == measured:
        return 0.0
    return None if simulated is None or not measured else simulated / measured - 1


def step_rows(case: Case, check: str, error: StepError, tolerance: float | None) -> list[Row]:
    """Rows of the errors of step times; only the mean has a tolerance."""
    return [
        Row(*case, check, f"step_{name}", None, None, value, 0.0, tolerance if name == "mean" else None)
        for name, value in error._asdict().items()
    ]


def parity_row(case: Case, same: bool) -> Row:
    """Whether the simulation, given the measured durations, decided the same."""
    return Row(*case, "parity", "plans", None, None, 0.0 if same else 1.0, 0.0, 0.0)
