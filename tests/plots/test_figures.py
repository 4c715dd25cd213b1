"""The published figures, drawn again."""

from __future__ import annotations

from kvsim.plots.figures import stacked_shares


def test_shares_end_at_the_whole() -> None:
    axes = stacked_shares({"a": [60, 40]}, {"a": [50, 50]}, ["token_state", "external"])
    assert axes.get_ylim() == (0, 100)
    assert axes.get_legend() is None
    assert len(axes.figure.legends) == 1
