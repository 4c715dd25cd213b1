"""Figure 2 of the vLLM paper: how the KV memory is used while requests always wait."""

from __future__ import annotations

from kvsim.plots.figures import stacked_shares
from kvsim.reproduce.base import Band, Figure, Outcome, Row
from kvsim.reproduce.runner import Runner

SEEDS = range(4)
CLASSES = ("token_state", "reserved", "internal", "external")
NAMES = ("token states", "reservation", "internal frag.", "external & others")
PUBLISHED = {
    "orca_max": ("Orca (Max)", (20.4, 13.3, 57.3, 8.9), 4.5),
    "orca_pow2": ("Orca (Pow2)", (26.8, 17.9, 13.6, 41.6), 5.0),
    "orca_oracle": ("Orca (Oracle)", (38.2, 25.2, 0.0, 36.6), 5.0),
}
"""System -> label, percent of the KV memory in each class, tolerance in points."""

VLLM = ("vLLM", (96.3, 0.0, 0.0, 3.7))
"""The paper gives vLLM's waste as one number."""

VLLM_AT_LEAST = 95.0


def reproduce(runner: Runner) -> Outcome:
    """Shares of the pool over time, means of the seeds."""
    systems = [*PUBLISHED, "vllm_paper"]

    def measure(system: str) -> list[float]:
        overrides = ("experiment=fig2", f"system={system}")
        return [100 * runner.mean(f"kv_{name}_frac", *overrides, seeds=SEEDS) for name in CLASSES]

    ours = dict(zip(systems, runner.map(measure, systems), strict=True))
    rows = [
        Row(f"{label} {name}", paper, share, "%", Band.absolute(paper, tolerance), digits=1)
        for system, (label, shares, tolerance) in PUBLISHED.items()
        for name, paper, share in zip(NAMES, shares, ours[system], strict=True)
    ]
    label, shares = VLLM
    rows.append(Row(f"{label} {NAMES[0]}", shares[0], ours["vllm_paper"][0], "%", Band(VLLM_AT_LEAST), digits=1))
    paper_bars = {name: shares for name, shares, _ in PUBLISHED.values()} | {label: shares}
    our_bars = dict(zip(paper_bars, ours.values(), strict=True))
    return Outcome(rows, lambda: stacked_shares(paper_bars, our_bars, CLASSES))


FIGURE = Figure("fig2", "use of the KV memory, OPT-13B, ShareGPT, 4 req/s", "SOSP'23 Fig. 2", reproduce)
