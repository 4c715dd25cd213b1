"""The figure of `kvsim trace stats --plot`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kvsim.errors import ConfigError
from kvsim.plots.traces import draw_arrivals, draw_lengths, draw_reuse
from kvsim.workload.trace_stats import TraceStats

IMAGES = (".png", ".svg", ".pdf")


def check_image(path: Path, source: Path) -> None:
    """ConfigError unless `path` can be an image and is not the file that is read."""
    if path.suffix not in IMAGES:
        raise ConfigError(f"--plot {path}: must end in {', '.join(IMAGES)}")
    if not path.parent.is_dir():
        raise ConfigError(f"--plot {path}: there is no folder {path.parent}")
    if path.exists() and path.samefile(source):
        raise ConfigError(f"--plot {path}: is the file that is read; give another name")


def save_trace_figure(stats: TraceStats, path: Path) -> None:
    """One figure with a panel for each thing that the trace knows.

    Raises:
        ConfigError: `path` cannot be written.
    """
    from matplotlib.figure import Figure

    panels = 1 + (stats.arrivals_ns is not None) + (stats.reuse is not None)
    figure = Figure(figsize=(4.5 * panels, 3.4), layout="constrained")
    axes = iter(figure.subplots(1, panels, squeeze=False)[0])
    draw_lengths(next(axes), stats.prompts, stats.outputs)
    if stats.arrivals_ns is not None:
        draw_arrivals(next(axes), stats.arrivals_ns)
    if stats.reuse is not None:
        draw_reuse(next(axes), np.array(stats.reuse.prompt_tokens), np.array(stats.reuse.hit_tokens))
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ConfigError(f"--plot {path}: cannot be written: {error.strerror}") from error
