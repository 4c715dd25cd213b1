"""Figure 12a of the vLLM paper: OPT-13B on ShareGPT."""

from __future__ import annotations

from kvsim.reproduce.base import Band, Figure, Outcome, Row
from kvsim.reproduce.curves import LEVEL, Curve, compare_curves
from kvsim.reproduce.runner import Runner

CURVES = (
    Curve(
        "FasterTransformer",
        "fastertransformer",
        ((0.01, 0.024), (0.05, 0.043), (0.1, 0.127), (0.15, 0.255), (0.2, 0.280), (0.25, 0.637), (0.3, 1.54)),
    ),
    Curve("Orca (Max)", "orca_max", ((0.2, 0.030), (0.3, 0.031), (0.4, 0.060), (0.5, 0.082))),
    Curve("Orca (Pow2)", "orca_pow2", ((0.25, 0.030), (0.5, 0.040), (0.6, 0.040), (0.75, 0.117))),
    Curve(
        "Orca (Oracle)",
        "orca_oracle",
        ((0.25, 0.030), (0.5, 0.033), (0.75, 0.041), (0.9, 0.085), (1.0, 0.192), (1.1, 0.502)),
    ),
    # two markers at 1.5 req/s, 0.042 and 0.049: their geometric mean
    Curve(
        "vLLM",
        "vllm_paper",
        ((1.0, 0.037), (1.25, 0.040), (1.5, 0.0454), (1.75, 0.113), (1.8, 0.131), (1.9, 0.240), (2.0, 1.12)),
    ),
)

VLLM_OVER_ORACLE = 1.86
VLLM_OVER_MAX = 2.5
"""At least; the paper's text says 2.7 to 8, over all models."""


def reproduce(runner: Runner) -> Outcome:
    """Rates at the level, and how much more vLLM serves than Orca."""
    outcome, rates = compare_curves(runner, "fig12a", CURVES)

    def gain(system: str) -> float | None:
        ours, other = rates["vllm_paper"], rates[system]
        return None if ours is None or other is None else ours / other

    at = f"rate at {LEVEL} s/token"
    over_oracle = Band.relative(VLLM_OVER_ORACLE, 0.2)
    outcome.rows.append(Row(f"vLLM / Oracle, {at}", VLLM_OVER_ORACLE, gain("orca_oracle"), "times", over_oracle))
    outcome.rows.append(Row(f"vLLM / Max, {at}", None, gain("orca_max"), "times", Band(VLLM_OVER_MAX)))
    return outcome


FIGURE = Figure("fig12a", "latency over rate, OPT-13B, ShareGPT", "SOSP'23 Fig. 12a, digitised", reproduce)
