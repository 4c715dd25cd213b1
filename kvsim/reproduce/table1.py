"""Table 1 of the vLLM paper: KV slots beside the weights, from the sizes of model and hardware alone."""

from __future__ import annotations

from kvsim.plots.figures import paired_bars
from kvsim.reproduce.base import Band, Figure, Outcome, Row
from kvsim.reproduce.runner import Runner

PUBLISHED = {
    "OPT-13B": (15_700, ("model=opt-13b", "hardware=a100-40gb")),
    "OPT-66B": (9_700, ("model=opt-66b", "hardware=a100-40gb", "hardware.tensor_parallel=4")),
    "OPT-175B": (60_100, ("model=opt-175b", "hardware=a100-80gb", "hardware.tensor_parallel=8")),
}
"""Model -> its slots, and the machine."""


def reproduce(runner: Runner) -> Outcome:
    """The slots of the pool that each machine is given; nothing is simulated."""
    from kvsim.config import build, compose

    ours = {
        model: build(compose(["system=vllm_paper", "rate=1", *machine])).pool_tokens
        for model, (_, machine) in PUBLISHED.items()
    }
    paper = {model: float(slots) for model, (slots, _) in PUBLISHED.items()}
    rows = [
        Row(model, paper[model], ours[model], "KV slots", Band.relative(paper[model], 0.04), digits=0)
        for model in PUBLISHED
    ]
    return Outcome(rows, lambda: paired_bars(paper, ours, "KV slots"))


FIGURE = Figure("table1", "KV slots beside the weights of OPT-13B, 66B, 175B", "SOSP'23 Table 1", reproduce)
