"""Fits conf/cost/paper_a100.yaml: three numbers of the vLLM paper's testbed that no data sheet holds.

    python analysis/fit_paper_a100.py [--jobs N]

Fitted are the host's fixed and per-sequence time and the latency of an all-reduce hop. Everything else in the file
comes from data sheets and published kernel measurements.

Observed are (SOSP'23 Fig. 12, digitised; s of normalized latency per output token)
  - the batch-1 ends: the lowest rate of 12a, b and c (0.01 req/s, OPT-13B, 66B and 175B), where a request is alone.
    The paper's few requests there met no queue, so ours come one at a time;
  - vLLM's own points below its knee in 12a and 12d: latency at most twice the lowest of that curve.
Every knee, every other point of FasterTransformer, Orca and vLLM, and all other figures are left out, so that they are
predicted. The protocol is the paper's: arrivals for 600 s, drained, the first 60 s of requests dropped, three seeds.
The script prints the fit, the residual of every observation, and of the points left out in 12a and 12d.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.config import build, compose
from kvsim.reproduce import fig12a, fig12d

FREE = {"host.fixed_us": 1500.0, "host.per_sequence_us": 300.0, "allreduce_hop_us": 10.0}
SEEDS = (0, 1, 2)
TESTBEDS = {
    "opt-13b": ["hardware=a100-40gb", "kv.num_slots=15728"],
    "opt-66b": ["hardware=a100-40gb", "hardware.tensor_parallel=4", "kv.num_slots=9700"],
    "opt-175b": ["hardware=a100-80gb", "hardware.tensor_parallel=8", "kv.num_slots=60100"],
}
ALONE_BELOW = 0.02
ALONE = ["num_requests=500", "rate=1e-4"]
PAPER_RUN = ["duration=600", "warmup=60"]

Vector = NDArray[np.float64]


class Point(NamedTuple):
    """A marker of a figure."""

    figure: str
    system: str
    model: str
    workload: str
    rate: float
    latency: float


def curve(figure: str, system: str, model: str, workload: str, points: dict[float, float]) -> list[Point]:
    """Markers of one curve, rate -> s/token."""
    return [Point(figure, system, model, workload, rate, latency) for rate, latency in points.items()]


def published(figure: ModuleType, system: str) -> dict[float, float]:
    """Markers of a system in a figure that kvsim reproduces, rate -> s/token."""
    return next(dict(curve.points) for curve in figure.CURVES if curve.system == system)


BATCH_1 = [
    Point(figure, "fastertransformer", model, "sharegpt", 0.01, latency)
    for figure, model, latency in (
        ("12a", "opt-13b", published(fig12a, "fastertransformer")[0.01]),
        ("12b", "opt-66b", 0.038),
        ("12c", "opt-175b", 0.056),
    )
]


def below_knee(points: dict[float, float]) -> dict[float, float]:
    """Those at most twice the lowest."""
    return {rate: latency for rate, latency in points.items() if latency <= 2 * min(points.values())}


def beyond_knee(points: dict[float, float]) -> dict[float, float]:
    """The others."""
    return {rate: latency for rate, latency in points.items() if rate not in below_knee(points)}


def vllm(select: Callable[[dict[float, float]], dict[float, float]]) -> list[Point]:
    """VLLM's markers in 12a and 12d that `select` picks."""
    return [
        *curve("12a", "vllm_paper", "opt-13b", "sharegpt", select(published(fig12a, "vllm_paper"))),
        *curve("12d", "vllm_paper", "opt-13b", "alpaca", select(published(fig12d, "vllm_paper"))),
    ]


def simulate(job: tuple[Point, int, tuple[float, ...]]) -> float:
    """Normalized latency, s/token, at a point under a seed and values of the free numbers."""
    point, seed, values = job
    free = [f"cost.{name}={value!r}" for name, value in zip(FREE, values, strict=True)]
    overrides = [
        f"system={point.system}",
        f"model={point.model}",
        f"workload={point.workload}",
        f"seed={seed}",
        "cost=paper_a100",
        *TESTBEDS[point.model],
        *([f"rate={point.rate}", *PAPER_RUN] if point.rate > ALONE_BELOW else ALONE),
        *free,
    ]
    latency = build(compose(overrides)).execute()["mean_normalized_latency"]
    assert isinstance(latency, float)
    return latency


def predict(pool: ProcessPoolExecutor, points: list[Point], settings: Iterable[Vector]) -> list[Vector]:
    """[settings][points] mean latency over the seeds, the same random numbers for every setting."""
    vectors = [tuple(setting.tolist()) for setting in settings]
    jobs = [(point, seed, vector) for vector in vectors for point in points for seed in SEEDS]
    latencies = np.array(list(pool.map(simulate, jobs)))
    return list(latencies.reshape(len(vectors), len(points), len(SEEDS)).mean(axis=2))


def fit(pool: ProcessPoolExecutor, points: list[Point], rounds: int = 8) -> Vector:
    """Gauss-Newton on log latency over the log of the free numbers; a step that does not help is halved."""
    observed = np.log([point.latency for point in points])

    def misses(settings: list[Vector]) -> list[Vector]:
        return [observed - np.log(latency) for latency in predict(pool, points, map(np.exp, settings))]

    x, small = np.log(list(FREE.values())), 0.02
    miss, *moved = misses([x, *(x + small * unit for unit in np.eye(len(x)))])
    for _ in range(rounds):
        print(f"rms {rms(miss):.4f} at " + describe(np.exp(x)), flush=True)
        slopes = np.stack([(miss - other) / small for other in moved], axis=1)
        change = np.linalg.lstsq(slopes, miss, rcond=None)[0].clip(-0.3, 0.3)
        trials = [x + change / 2**halvings for halvings in range(4)]
        tried = misses(trials)
        best = int(np.argmin([rms(trial) for trial in tried]))
        if rms(tried[best]) > 0.999 * rms(miss):
            break
        x, miss = trials[best], tried[best]
        moved = misses([x + small * unit for unit in np.eye(len(x))])
    return np.exp(x)


def rms(values: Vector) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def describe(values: Vector) -> str:
    """The free numbers by name."""
    return ", ".join(f"{name} {value:.4g}" for name, value in zip(FREE, values, strict=True))


def report(title: str, points: list[Point], latencies: Vector) -> None:
    """Observed and predicted, a line a point."""
    print(f"\n{title}\nfigure system             rate   paper    ours   error")
    for point, ours in zip(points, latencies, strict=True):
        print(
            f"{point.figure:6} {point.system:17} {point.rate:5g} {point.latency:7.4f} {ours:7.4f} "
            f"{100 * (ours / point.latency - 1):+6.1f} %"
        )


def main() -> None:
    """Fit, then print."""
    parser = argparse.ArgumentParser(description="Fit conf/cost/paper_a100.yaml.")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    with ProcessPoolExecutor(parser.parse_args().jobs) as pool:
        observations, held_out = BATCH_1 + vllm(below_knee), vllm(beyond_knee)
        values = fit(pool, observations)
        print("\nfitted: " + describe(values))
        report("fitted points", observations, predict(pool, observations, [values])[0])
        report("held out", held_out, predict(pool, held_out, [values])[0])


if __name__ == "__main__":
    main()
