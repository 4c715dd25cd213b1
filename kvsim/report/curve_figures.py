"""Metrics against what was varied, a curve a series."""

from __future__ import annotations

from collections.abc import Sequence

from kvsim.plots.data import Curve
from kvsim.report.charts import CURVES, Charts, axis_label
from kvsim.report.facts import caption
from kvsim.report.figure import LOGARITHMIC, Figure, Plot, Spec, dash, numbers, series_keys, spec
from kvsim.report.points import RATE

SATURATED = "Hollow markers: a run saturated, so the value grows with its length."
SEEDS = "Bands: least to greatest seed."
PARTIAL = "Where not every seed defines a value, the mean is of those that do; the table counts them."


def curve_figures(charts: Charts) -> list[Figure]:
    """Normalized latency, TTFT, TPOT and batch of one setting."""
    curves, xlabel = charts.curves, axis_label(charts.setting)
    against = "against request rate" if charts.setting.axis == RATE else f"against {charts.setting.axis}"
    points = [point for series in charts.setting.series for point in series.points if point.x is not None]
    notes = [SATURATED] if any(any(point.saturated) for point in points) else []
    notes += [SEEDS] if any(len(point.runs) > 1 for point in points) else []
    estimates = [estimate for point in points for metric in CURVES if (estimate := point.estimate(metric))]
    notes += [PARTIAL] if any(estimate.is_partial for estimate in estimates) else []
    ending = " ".join([*notes, caption(charts.setting, points)])
    keys = series_keys([curve.legend for curve in curves["mean_batch_size"]])

    def figure(title: str, text: str, ylabel: str, shown: Sequence[Curve], dotted: Sequence[Curve] = ()) -> Figure:
        logarithmic = ylabel != "sequences"
        traces = [trace for curve in shown for trace in _curve_traces(curve)]
        traces += [trace for curve in dotted for trace in _curve_traces(curve, "p99 ", dotted=True)]
        layout = {
            "xaxis": {"title": {"text": xlabel}},
            "yaxis": {"title": {"text": ylabel}} | (LOGARITHMIC if logarithmic else {"rangemode": "tozero"}),
        }
        plot = Plot(f"{title} {against}, a curve a system. The table has the values.", spec([traces], layout))
        return Figure(f"{title} {against}", [plot], keys, f"{text} {ending}")

    found = [
        figure(
            "Normalized latency",
            "Mean over requests of end-to-end latency by output tokens.",
            "s/token",
            curves["mean_normalized_latency"],
        )
    ]
    names = {"TTFT": "Time to first token", "TPOT": "Time per output token after the first"}
    for name, words in names.items():
        metric = f"{name.lower()}_ms"
        shown, dotted = curves[f"median_{metric}"], curves[f"p99_{metric}"]
        text = f"{words}: median in full lines, 99th percentile dotted."
        found.append(figure(name, text, "ms", shown, dotted))
    text = "Sequences in a step, averaged over time."
    return [*found, figure("Mean batch", text, "sequences", curves["mean_batch_size"])]


def _curve_traces(curve: Curve, prefix: str = "", dotted: bool = False) -> list[Spec]:
    legend = curve.legend
    style = legend.style
    symbols = [f"{style.symbol}-open" if hollow else style.symbol for hollow in curve.saturated.tolist()]
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"{prefix}{legend.label}",
        "legendgroup": legend.label,
        "x": numbers(curve.x),
        "y": numbers(curve.value),
        "line": {"color": style.light, "dash": "dot" if dotted else dash(legend), "width": 2},
        "marker": {"symbol": symbols, "size": 7 if dotted else 9, "color": style.light},
        "hovertemplate": "%{y:.4g} at %{x}",
    }
    spread = curve.high > curve.low
    if not spread.any():
        return [line]
    known = ~(curve.low != curve.low)
    x, low, high = curve.x[known], curve.low[known], curve.high[known]
    band = {
        "type": "scatter",
        "mode": "lines",
        "legendgroup": legend.label,
        "x": [*numbers(x), *numbers(x[::-1])],
        "y": [*numbers(high), *numbers(low[::-1])],
        "fill": "toself",
        "fillcolor": style.light,
        "line": {"width": 0},
        "opacity": 0.15,
        "hoverinfo": "skip",
    }
    return [band, line]
