"""Every figure of runs shows its data."""

from __future__ import annotations

import io

import numpy as np
import pytest

from kvsim.plots import runs
from kvsim.plots.colours import SYSTEMS
from kvsim.plots.data import Curve, Distribution, Legend, Split, Timeline

LEGEND = Legend("vllm_v1, kv.num_blocks=9", SYSTEMS["vllm_v1"], 1)


def curve(*values: float) -> Curve:
    value = np.array(values)
    x = np.arange(1.0, len(values) + 1)
    return Curve(LEGEND, x, value, value * 0.9, value * 1.1, np.arange(len(values)) == len(values) - 1)


def test_curves() -> None:
    axes = runs.normalized_latency([curve(0.1, 0.2, np.nan, 9)], "rate")
    line, hollow = axes.lines
    assert np.array_equal(line.get_ydata(), [0.1, 0.2, np.nan, 9], equal_nan=True)
    assert (line.get_color(), line.get_linestyle()) == (LEGEND.style.light, "--")
    assert (list(hollow.get_xdata()), hollow.get_markerfacecolor()) == ([4], "white")
    assert (axes.get_yscale(), axes.get_xlabel()) == ("log", "rate")
    assert len(axes.collections) == 1  # the band


def test_percentiles_share_a_legend() -> None:
    axes = runs.latency_percentiles([curve(1, 2)], [curve(3, 4)], "TTFT", "rate")
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [LEGEND.label]
    assert ":" in [line.get_linestyle() for line in axes.lines]


def test_batch_starts_at_zero() -> None:
    assert runs.batch_size([curve(5, 6)], "rate").get_ylim()[0] == 0


def test_bars_add_up() -> None:
    shares = {"token_state": 0.5, "reserved": 0.03, "internal": 0.07, "external": 0.4}
    axes = runs.kv_split([Split(LEGEND, shares)])
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(100)
    assert [text.get_text() for text in axes.texts] == ["50", "7", "40"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("label", ["scheduler.max_num_batched_tokens=2048, " * 4, "y" * 200])
def test_long_labels_leave_room_for_the_bars(label: str) -> None:
    shares = {"token_state": 0.5, "reserved": 0.1, "internal": 0.0, "external": 0.4}
    axes = runs.kv_split([Split(LEGEND._replace(label=f"{index} {label}"), shares) for index in range(16)])
    axes.figure.savefig(io.BytesIO(), format="png")
    assert axes.get_window_extent().width > 300


def test_cdf() -> None:
    axes = runs.latency_cdf([Distribution(LEGEND, np.array([1.0, 10, 100]), np.array([0, 0.5, 1]))], "TPOT")
    assert axes.lines[0].get_ydata()[-1] == 1
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "TPOT, ms")


def test_cdf_is_cut_at_its_tails() -> None:
    values, fraction = np.array([1.0, 10, 100, 1e6]), np.array([0, 0.001, 0.999, 1])
    axes = runs.latency_cdf([Distribution(LEGEND, values, fraction)], "TPOT")
    assert axes.get_xlim() == (pytest.approx(10), pytest.approx(100))
    same = Distribution(LEGEND, np.zeros(2), np.array([0.0, 1]))
    assert runs.central_range([same]) is None


def test_long_legend_stands_below() -> None:
    many = [curve(1, 2)._replace(legend=LEGEND._replace(label=f"{'long name ' * 9}{index}")) for index in range(9)]
    axes = runs.batch_size(many, "rate")
    assert axes.get_legend() is None
    (legend,) = axes.figure.legends
    assert len(legend.get_texts()) == 9
    assert all(text.get_text().count("\n") < runs.LABEL_LINES for text in legend.get_texts())


def test_dollars_begin_no_formula() -> None:
    assert runs.wrapped("$x_{ and $") == r"\$x_{ and \$"
    assert runs.wrapped("") == ""


def test_timelines() -> None:
    memory = {"token_state": np.array([0.0, 0.6, 0.6]), "free_usable": np.array([1.0, 0.4, 0.4])}
    timeline = Timeline(LEGEND, np.array([0.0, 5, 9]), memory, np.array([0.0, 3, 3]), np.array([0.0, 1, 1]), 2)
    upper, lower = runs.memory_over_time(timeline), runs.queue_over_time(timeline)
    assert len(upper.collections) == 2
    assert upper.get_xlim() == lower.get_xlim() == (0, 9)
    assert upper.get_ylim() == (0, 100)
    assert [line.get_label() for line in lower.lines][:2] == ["running", "waiting"]
