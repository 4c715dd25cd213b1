"""What a reproduced figure leaves: a table on stdout, CSV and PNG in a folder."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.atomic import replacing
from kvsim.errors import ConfigError
from kvsim.reproduce.base import Band, Figure, Outcome, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

Cell = str | float | None


def record(figure: Figure, row: Row) -> dict[str, Cell]:
    """A row as one flat dict; open ends of a band are None."""
    low, high = row.band or Band()
    return {
        "figure": figure.name,
        "quantity": row.quantity,
        "unit": row.unit,
        "paper": row.paper,
        "ours": row.ours,
        "difference": row.difference,
        "low": low if math.isfinite(low) else None,
        "high": high if math.isfinite(high) else None,
        "verdict": row.verdict.value,
        "note": row.remark,
    }


def open_folder(path: Path) -> None:
    """Make the folder.

    Raises:
        ConfigError: it cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with replacing(path / "probe") as probe:
            probe.touch()
        (path / "probe").unlink()
    except OSError as error:
        raise ConfigError(
            f"cannot write to {path}: {error.strerror or error}; choose another folder, -o DIR"
        ) from error


def write(folder: Path, figure: Figure, outcome: Outcome) -> None:
    """``FIGURE.csv``, ``FIGURE.png`` and, of curves, ``FIGURE_points.csv``; each appears complete or not at all."""
    write_csv(folder / f"{figure.name}.csv", [record(figure, row) for row in outcome.rows])
    if outcome.markers:
        write_csv(folder / f"{figure.name}_points.csv", [marker._asdict() for marker in outcome.markers])
    axes = outcome.draw()
    axes.set_title(f"{figure.title} ({figure.source})", fontsize=9)
    write_png(folder / f"{figure.name}.png", axes)


def write_csv(path: Path, records: Sequence[dict[str, Cell]]) -> None:
    """A header and one line a record; None is empty."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def write_png(path: Path, axes: Axes) -> None:
    """The figure of `axes`; the same drawing gives the same bytes."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": None})


def print_table(figure: Figure, rows: Iterable[Row], console: Console) -> None:
    """Rows, then their notes."""
    from rich import box
    from rich.table import Table

    rows = list(rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"{figure.name}: {figure.title}", title_justify="left")
    for heading in (figure.source, "unit", "paper", "ours", "difference", "band", "verdict"):
        table.add_column(heading, justify="left" if heading in (figure.source, "unit", "verdict") else "right")
    for row in rows:
        table.add_row(row.quantity, row.unit, _number(row, row.paper), _number(row, row.ours), _difference(row),
                      _band(row), row.verdict.value)  # fmt: skip
    console.print(table)
    for row in rows:
        if row.remark:
            console.print(f"{row.verdict.value}, {row.quantity}: {row.remark}")
    console.print()


def _number(row: Row, value: float | None) -> str:
    return "-" if value is None else f"{value:,.{row.digits}f}"


def _difference(row: Row) -> str:
    if row.difference is None:
        return "-"
    if row.unit == "%":
        return f"{row.difference:+.1f} points"
    return f"{100 * row.difference / row.paper:+.1f} %" if row.paper else f"{row.difference:+.{row.digits}f}"


def _band(row: Row) -> str:
    if row.band is None:
        return "-"
    low, high = row.band
    if math.isinf(high):
        return f"at least {_number(row, low)}"
    return f"{_number(row, low)} to {_number(row, high)}"
