"""`make demo`: the systems of the vLLM paper side by side on one workload, in one table."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kvsim.config import build, compose
from kvsim.table import print_summaries

SYSTEMS = ("fastertransformer", "orca_max", "orca_pow2", "orca_oracle", "vllm_paper")


def main(overrides: Sequence[str]) -> None:
    """Run every system under ``experiment=demo``, changed by `overrides`, and print the summaries."""
    summaries = []
    for system in SYSTEMS:
        run = build(compose(["experiment=demo", f"system={system}", *overrides]), workload_name="sharegpt")
        print(f"simulating {system} ...", file=sys.stderr)
        summaries.append(run.execute())
    print_summaries(summaries)


if __name__ == "__main__":
    main(sys.argv[1:])
