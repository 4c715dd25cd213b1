"""From folders of runs to the files of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvsim.atomic import replacing
from kvsim.errors import ConfigError
from kvsim.report.arrange import arrange
from kvsim.report.charts import gather
from kvsim.report.facts import facts
from kvsim.report.page import render, require_libraries
from kvsim.report.pictures import is_picture, pictures
from kvsim.report.runs import LostRun, find_runs
from kvsim.report.table import Row, rows, to_csv, to_markdown


@dataclass(frozen=True)
class Report:
    """What was written, and the runs that are not in it."""

    html: Path
    rows: list[Row]
    lost: list[LostRun]


def write_report(folders: Sequence[Path], html: Path, figures: Path) -> Report:
    """Compare the runs in `folders`: the page `html`, beside it .csv and .md, PNG files in the folder `figures`.

    Every file is written under a temporary name and renamed, the page last; figures that an earlier report left are
    removed. Same runs, same bytes.

    Raises:
        ConfigError: no finished run, Plotly or Jinja is missing, or a file cannot be written.
    """
    require_libraries()
    if html.suffix != ".html":
        raise ConfigError(f"-o {html}: must end in .html; the table is written beside it as .csv and .md")
    finished, lost = find_runs(folders)
    settings, repeated = arrange(finished)
    lost += repeated
    charts = gather(settings)
    texts = {
        html.with_suffix(".csv"): to_csv(settings),
        html.with_suffix(".md"): to_markdown(settings, lost, facts(settings)),
        html: render(charts, lost),
    }
    try:
        html.parent.mkdir(parents=True, exist_ok=True)
        figures.mkdir(parents=True, exist_ok=True)
        drawn = set()
        for name, png in pictures(charts):
            _write(figures / name, png)
            drawn.add(name)
        for path in figures.glob("*.png"):
            if path.name not in drawn and is_picture(path):
                path.unlink()
        for path, text in texts.items():
            _write(path, text.encode())
    except OSError as error:
        raise ConfigError(
            f"cannot write {error.filename}: {error.strerror}; choose another place with -o and --figures"
        ) from error
    return Report(html, rows(settings), lost)


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as staged:
        staged.write_bytes(content)
