"""Where the memory is, how latencies spread, what happened over time: at one place along the curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from kvsim.plots.colours import MEMORY
from kvsim.plots.data import Distribution, Split, Timeline
from kvsim.plots.runs import LABELLED_PERCENT, central_range
from kvsim.report.charts import SHARES, Charts, axis_label, place_text
from kvsim.report.facts import caption
from kvsim.report.figure import LOGARITHMIC, Figure, Plot, Spec, broken, dash, memory_keys, numbers, series_keys, spec
from kvsim.report.points import Point
from kvsim.report.samples import LATENCIES


def split_figure(charts: Charts) -> Figure:
    """Memory classes as bars of 100 %, at a place to choose."""
    places = [place for place, splits in charts.splits.items() if splits]
    first = _first(places, charts)
    layout = {
        "barmode": "stack",
        "bargap": 0.3,
        "xaxis": {"title": {"text": "KV memory, % of the pool"}, "range": [0, 100]},
        "yaxis": {"autorange": "reversed", "type": "category"},
    }
    data = [[_split_trace(charts.splits[place], name) for name in SHARES] for place in places]
    told = "; ".join(_told(split) for split in charts.splits[places[first]])
    text = "Average over time, in the classes of the vLLM paper; what is cached or lost to rounding is in the last."
    return Figure(
        title="Where the KV memory is",
        plots=[
            Plot(
                label=f"Stacked bars. At {place_text(charts.setting, places[first])}, {told}.",
                spec=spec(data, layout),
                bars=max(map(len, charts.splits.values())),
            )
        ],
        keys=memory_keys(SHARES),
        caption=f"{text} {caption(charts.setting, _points(charts))}",
        choices=[place_text(charts.setting, place) for place in places],
        chosen=first,
        choices_label=axis_label(charts.setting),
    )


def _told(split: Split) -> str:
    shares = [f"{MEMORY[name].label} {share:.0%}" for name, share in split.shares.items()]
    return f"{split.legend.label}: {', '.join(shares)}"


def _split_trace(splits: Sequence[Split], name: str) -> Spec:
    shares = [100 * split.shares[name] for split in splits]
    return {
        "type": "bar",
        "orientation": "h",
        "name": MEMORY[name].label,
        "legendgroup": MEMORY[name].label,
        "y": [broken(split.legend.label) for split in splits],
        "x": numbers(shares),
        "text": [f"{share:.0f}" if share >= LABELLED_PERCENT else "" for share in shares],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "marker": {"color": MEMORY[name].light},
        "hovertemplate": "%{x:.1f} %",
    }


def cdf_figure(charts: Charts) -> Figure:
    """Distributions of TTFT, TPOT and E2EL, at a place to choose."""
    places = [place for place, parts in charts.distributions.items() if parts["TTFT"]]
    plots = []
    for name in LATENCIES:
        data = [[_cdf_trace(part) for part in charts.distributions[place][name]] for place in places]
        bounds = central_range([part for place in places for part in charts.distributions[place][name]])
        shown = {"range": [math.log10(bound) for bound in bounds]} if bounds else {}
        layout = {
            "xaxis": {"title": {"text": f"{name}, ms"}} | LOGARITHMIC | shown,
            "yaxis": {"title": {"text": "fraction of requests"}, "range": [0, 1.01]},
        }
        plots.append(Plot(f"Cumulative distribution of {name}, a curve a system.", spec(data, layout)))
    legends = [series.legend for series in charts.setting.series]
    text = "Completed requests, seeds pooled; the axes leave out 0.1 % on either side. E2EL: arrival to last token."
    return Figure(
        title="Distribution of latencies over requests",
        plots=plots,
        keys=series_keys(legends),
        caption=f"{text} {caption(charts.setting, _points(charts))}",
        choices=[place_text(charts.setting, place) for place in places],
        chosen=_first(places, charts),
        choices_label=axis_label(charts.setting),
    )


def _cdf_trace(part: Distribution) -> Spec:
    legend = part.legend
    return {
        "type": "scatter",
        "mode": "lines",
        "name": legend.label,
        "legendgroup": legend.label,
        "x": numbers(part.value, 4),
        "y": numbers(part.fraction, 4),
        "line": {"color": legend.style.light, "dash": dash(legend), "width": 2},
        "hovertemplate": "%{y:.1%} within %{x:.4g} ms",
    }


def timeline_figure(charts: Charts) -> Figure:
    """Memory and queue of a run a series over time."""
    names = [name for name in MEMORY if any(name in timeline.memory for timeline in charts.timelines)]
    top = max(float(max(timeline.waiting.max(), timeline.running.max())) for timeline in charts.timelines)
    points = [point for series in charts.setting.series if (point := series.at(charts.place)) is not None]
    shown = [replace(point, runs=point.runs[:1]) for point in points]
    text = (
        f"One run a system, until the first system was done; of every pixel the steps with the most and "
        "the least memory and queue. Below: requests running (full line) and waiting (dotted). "
        f"{caption(charts.setting, shown)}"
    )
    title = f"Memory and queue over time, at {place_text(charts.setting, charts.place)}"
    return Figure(title, [_timeline_plot(one, top) for one in charts.timelines], memory_keys(names), text)


def _timeline_plot(timeline: Timeline, top: float) -> Plot:
    legend = timeline.legend
    time = numbers(timeline.time_s, 6)
    traces: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines",
            "stackgroup": "memory",
            "name": MEMORY[name].label,
            "legendgroup": MEMORY[name].label,
            "x": time,
            "y": numbers(100 * share, 4),
            "line": {"width": 0, "shape": "hv", "color": MEMORY[name].light},
            "fillcolor": MEMORY[name].light,
            "hovertemplate": "%{y:.1f} %",
        }
        for name, share in timeline.memory.items()
    ]
    for name, values, dashes in (("running", timeline.running, "solid"), ("waiting", timeline.waiting, "dot")):
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "yaxis": "y2",
                "name": name,
                "x": time,
                "y": numbers(values),
                "line": {"width": 1.5, "shape": "hv", "color": legend.style.light, "dash": dashes},
            }
        )
    title = broken(legend.label)
    layout: Spec = {
        "title": {"text": title, "x": 0, "xref": "paper", "font": {"size": 14}},
        "margin": {"t": 34 + 17 * title.count("<br>")},
        "hovermode": "x unified",
        "xaxis": {"title": {"text": "time, s"}, "anchor": "y2"},
        "yaxis": {"title": {"text": "% of the pool"}, "range": [0, 100], "domain": [0.4, 1]},
        "yaxis2": {"title": {"text": "requests"}, "range": [0, 1.05 * max(top, 1)], "domain": [0, 0.32]},
    }
    if timeline.warmup_s:
        bound = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": timeline.warmup_s, "x1": timeline.warmup_s}
        layout["shapes"] = [bound | {"line": {"dash": "dash", "width": 1, "color": "#7d8288"}}]
    label = f"Memory classes, requests running and requests waiting over time under {legend.label}."
    return Plot(label, spec([traces], layout), tall=True)


def _first(places: Sequence[float | None], charts: Charts) -> int:
    return places.index(charts.place) if charts.place in places else 0


def _points(charts: Charts) -> list[Point]:
    return [point for series in charts.setting.series for point in series.points]
