"""Figure 13b of the vLLM paper: batch on Alpaca at 30 req/s."""

from __future__ import annotations

from kvsim.reproduce.base import Figure, Outcome
from kvsim.reproduce.batches import EXACT, Batch, compare_batches
from kvsim.reproduce.runner import Runner

OVERLOAD = ("rate=60",)
"""So that the queue is never empty: the batch is then what the pool holds, whatever a step costs."""

WHY_REPORTED = (
    "past saturation (Fig. 12d ends at 28 req/s), where the batch is what a full pool holds, pool / resident tokens of "
    "a sequence: the paper's means 114 resident tokens (96.3 % of 15,728 slots / 132.44), these lengths give 78."
)

BATCHES = (
    Batch("Orca (Max)", "orca_max", 7.00, EXACT, OVERLOAD),
    Batch("Orca (Pow2)", "orca_pow2", 43.24, 0.15, OVERLOAD),
    Batch("Orca (Oracle)", "orca_oracle", 72.75, 0.15, OVERLOAD),
    Batch("vLLM", "vllm_paper", 132.44, None, note=WHY_REPORTED),
    Batch(
        "vLLM, 28 req/s",
        "vllm_paper",
        132.44,
        None,
        ("rate=28",),
        "the same at the last marker of Fig. 12d, where the batch still grows.",
    ),
)


def reproduce(runner: Runner) -> Outcome:
    """Mean batches, the reserving systems in overload."""
    return compare_batches(runner, "fig13b", BATCHES)


FIGURE = Figure("fig13b", "batch, OPT-13B, Alpaca, 30 req/s", "SOSP'23 Fig. 13b", reproduce)
