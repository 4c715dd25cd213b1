"""Figure 13a of the vLLM paper: batch on ShareGPT at 2 req/s."""

from __future__ import annotations

from kvsim.reproduce.base import Figure, Outcome
from kvsim.reproduce.batches import EXACT, Batch, compare_batches
from kvsim.reproduce.runner import Runner

WHY_REPORTED = (
    "the pool is always full, so the batch is what it holds, pool / resident tokens of a sequence: the paper's means "
    "498 resident tokens (96.3 % of 15,728 slots / 30.42), these lengths give 409."
)

BATCHES = (
    Batch("Orca (Max)", "orca_max", 7.00, EXACT),
    Batch("Orca (Pow2)", "orca_pow2", 9.81, 0.10),
    Batch("Orca (Oracle)", "orca_oracle", 13.62, 0.10),
    Batch("vLLM", "vllm_paper", 30.42, None, note=WHY_REPORTED),
)


def reproduce(runner: Runner) -> Outcome:
    """Mean batches at the rate of the caption."""
    return compare_batches(runner, "fig13a", BATCHES)


FIGURE = Figure("fig13a", "batch, OPT-13B, ShareGPT, 2 req/s", "SOSP'23 Fig. 13a", reproduce)
