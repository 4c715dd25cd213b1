"""Drawings of a trace: lengths, arrivals, prefix reuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IntArray = NDArray[np.int64]

MINUTE_NS = 60_000_000_000
MAX_BINS = 2000
"""Bars of the arrivals: a trace of months is drawn in longer steps than minutes."""


def draw_lengths(axes: Axes, prompts: IntArray, outputs: IntArray) -> Axes:
    """Distribution functions of prompt and output lengths ([rows] tokens)."""
    for label, values in (("prompt", prompts), ("output", outputs)):
        points, counts = np.unique(values, return_counts=True)
        axes.step(points, np.cumsum(counts) / len(values), where="post", label=label)
    axes.set_xscale("symlog", linthresh=1)
    axes.set(xlabel="tokens", ylabel="share of requests", title="lengths", ylim=(0, 1))
    axes.legend()
    return axes


def draw_arrivals(axes: Axes, arrivals_ns: IntArray) -> Axes:
    """Requests a minute over time ([rows] ascending ns)."""
    since = arrivals_ns - arrivals_ns[0]
    step = max(1, -(-int(since[-1] // MINUTE_NS + 1) // MAX_BINS))
    counts = np.bincount(since // (MINUTE_NS * step))
    axes.stairs(counts / step, np.arange(len(counts) + 1) * step, fill=True)
    axes.set(xlabel="minute", ylabel="requests a minute", title="arrivals")
    return axes


def draw_reuse(axes: Axes, prompt_tokens: IntArray, hit_tokens: IntArray) -> Axes:
    """Distribution function of the share of each prompt that an unlimited cache holds ([prompts] tokens)."""
    share = np.sort(hit_tokens / np.maximum(prompt_tokens, 1))
    axes.step(share, np.arange(1, len(share) + 1) / len(share), where="post")
    overall = hit_tokens.sum() / max(1, prompt_tokens.sum())
    axes.axvline(overall, color="0.5", linestyle=":", label=f"all tokens: {overall:.1%}")
    axes.set(xlabel="share of the prompt cached", ylabel="share of requests", title="prefix reuse", ylim=(0, 1))
    axes.legend()
    return axes
