"""What the drawings of a trace show."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from kvsim.plots.traces import MAX_BINS, MINUTE_NS, draw_arrivals, draw_lengths, draw_reuse


def test_lengths_end_at_the_whole() -> None:
    axes = draw_lengths(Figure().subplots(), np.array([5, 1, 5]), np.array([0, 2, 2]))
    prompt, output = axes.get_lines()
    assert prompt.get_xydata().tolist() == [[1, pytest.approx(1 / 3)], [5, 1]]
    assert output.get_xydata().tolist() == [[0, pytest.approx(1 / 3)], [2, 1]]


def test_arrivals_are_counted_by_the_minute() -> None:
    axes = draw_arrivals(Figure().subplots(), np.array([7, 8, 7 + MINUTE_NS, 7 + 3 * MINUTE_NS]))
    assert axes.patches[0].get_data().values.tolist() == [2, 1, 0, 1]


def test_a_long_trace_has_wider_steps_and_the_same_unit() -> None:
    axes = draw_arrivals(Figure().subplots(), np.arange(10 * MAX_BINS) * MINUTE_NS)
    values = axes.patches[0].get_data().values
    assert len(values) <= MAX_BINS and values == pytest.approx(1.0)


def test_reuse_is_drawn_by_request_and_marked_by_token() -> None:
    axes = draw_reuse(Figure().subplots(), np.array([10, 30, 0]), np.array([10, 0, 0]))
    shares, mark = axes.get_lines()
    assert shares.get_xdata().tolist() == [0, 0, 1]
    assert mark.get_xdata()[0] == 0.25
