"""Speed of the simulator, all files written: requests and iterations per CPU second of the run itself.

    python tests/benchmarks/simulator.py [--requests 10000] [--runs 3]

Composing the configuration and imports are not counted. Each workload runs several times; the best run is printed,
since other programs on the machine only ever slow it down.
"""

from __future__ import annotations

import argparse
import gc
import resource
import tempfile
import time

from kvsim.config import build, compose
from kvsim.results import RunFolder

WORKLOADS = {
    "sharegpt 1.7 req/s": ["workload=sharegpt", "rate=1.7"],
    "alpaca 26 req/s": ["workload=alpaca", "rate=26"],
}
COSTS = ("roofline", "paper_a100")


def measure(overrides: list[str]) -> tuple[float, int, float]:
    """CPU seconds, iterations and mean batch of one run."""
    run = build(compose(overrides))
    gc.collect()
    with tempfile.TemporaryDirectory() as path:
        start = time.process_time()
        with RunFolder(path) as folder:
            summary = run.execute(folder)
        seconds = time.process_time() - start
    return seconds, int(summary["steps"] or 0), float(summary["mean_batch_size"] or 0)


def main() -> None:
    """Print a line a workload and cost model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    print(f"vllm_paper, opt-13b on a100-40gb, {arguments.requests} requests, best of {arguments.runs}")
    print("workload            cost        batch  CPU s  requests/CPU-s  iterations/CPU-s")
    for name, workload in WORKLOADS.items():
        for cost in COSTS:
            overrides = ["system=vllm_paper", f"cost={cost}", f"num_requests={arguments.requests}", *workload]
            seconds, steps, batch = min(measure(overrides) for _ in range(arguments.runs))
            requests = arguments.requests / seconds
            print(f"{name:19} {cost:11} {batch:5.1f}  {seconds:5.2f}  {requests:14,.0f}  {steps / seconds:16,.0f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
