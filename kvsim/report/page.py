"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

import kvsim
from kvsim.errors import ConfigError
from kvsim.plots.colours import dark_colours
from kvsim.report.charts import Charts
from kvsim.report.curve_figures import curve_figures
from kvsim.report.facts import facts, headline
from kvsim.report.figure import Figure
from kvsim.report.runs import LostRun
from kvsim.report.sample_figures import cdf_figure, split_figure, timeline_figure
from kvsim.report.table import LEFT_OUT, lost_cells, table


class Section(NamedTuple):
    """The figures of one setting and what has to be said about them."""

    title: str
    figures: Sequence[Figure]
    notes: Sequence[str]


def require_libraries() -> None:
    """Raise ConfigError unless Plotly and Jinja are there."""
    for name in ("plotly", "jinja2"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ConfigError(f"a report needs {name}, which is not installed; pip install 'kvsim[report]'") from error


def render(charts: Sequence[Charts], lost: Sequence[LostRun]) -> str:
    """The whole page."""
    from jinja2 import Environment, StrictUndefined
    from plotly.offline import get_plotlyjs

    settings = [one.setting for one in charts]
    parts = resources.files("kvsim.report") / "templates"
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((parts / "report.html.jinja").read_text())
    return template.render(
        version=kvsim.__version__,
        headline=headline(settings),
        facts=facts(settings),
        table=table(settings),
        two_lines=two_lines,
        sections=[_section(one) for one in charts],
        lost_header=LEFT_OUT,
        lost=lost_cells(lost),
        style=(parts / "report.css").read_text(),
        script=(parts / "report.js").read_text(),
        dark_colours=json.dumps(dark_colours()),
        plotly=get_plotlyjs(),
    )


def two_lines(heading: str) -> list[str]:
    """A heading broken where the longer line is shortest: at a space, or after the dot of a key."""
    breaks = [match.end() for match in re.finditer(r" +|\.(?=\w)", heading)]
    halves = [[heading[:place].rstrip(), heading[place:]] for place in breaks]
    return min(halves, key=lambda lines: max(map(len, lines)), default=[heading])


def _section(charts: Charts) -> Section:
    figures = []
    if any(len(curve.x) for curve in charts.curves["mean_batch_size"]):
        figures += curve_figures(charts)
    if any(charts.splits.values()):
        figures.append(split_figure(charts))
    if any(parts["TTFT"] for parts in charts.distributions.values()):
        figures.append(cdf_figure(charts))
    if charts.timelines:
        figures.append(timeline_figure(charts))
    unequal = [f"{key} ({', '.join(values)})" for key, values in charts.setting.unequal.items()]
    notes = [f"Not the same in all runs: {'; '.join(unequal)}."] if unequal else []
    return Section(charts.setting.title, figures, [*notes, *charts.notes])
