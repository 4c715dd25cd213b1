"""Results of a validation: a CSV file that grows by case, a table, the misses and a figure."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from kvsim.atomic import replacing
from kvsim.errors import ConfigError
from kvsim.plots.validation import step_times
from kvsim.table import print_rows
from kvsim.units import NS_PER_MS
from kvsim.validate.case import CaseResult
from kvsim.validate.compare import Row, Verdict

RESULTS = "results.csv"

_TABLE = {
    "step": ("replay", "step_mean"),
    "step bias": ("replay", "step_bias"),
    "tokens/s": ("closed", "output_throughput"),
    "s/token": ("closed", "mean_normalized_latency"),
    "TTFT p50": ("closed", "median_ttft_ms"),
    "TTFT p99": ("closed", "p99_ttft_ms"),
    "TPOT p50": ("closed", "median_tpot_ms"),
    "TPOT p99": ("closed", "p99_tpot_ms"),
}


def open_folder(path: Path) -> Path:
    """The folder of the results, made if it is not there.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"validate.output={str(path)!r}: {error.strerror}; choose another folder") from error
    return path


def write_results(folder: Path, rows: Sequence[Row]) -> None:
    """Put `rows` into results.csv; those of other cases that are there stay."""
    path = folder / RESULTS
    ours = {(row.system, row.load) for row in rows}
    kept: list[dict[str, str]] = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            kept = [line for line in csv.DictReader(file) if (line["system"], line["load"]) not in ours]
    names = [*(field.name for field in fields(Row)), "verdict"]
    with replacing(path) as staged, staged.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        writer.writerows({**{k: _digits(v) for k, v in asdict(row).items()}, "verdict": row.verdict} for row in rows)


def _digits(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def print_table(rows: Sequence[Row]) -> None:
    """One line a case: errors of the simulation, the repeated runs' spread behind them."""
    cases: dict[tuple[str, str], dict[tuple[str, str], list[Row]]] = {}
    for row in rows:
        cases.setdefault((row.system, row.load), {}).setdefault((row.check, row.quantity), []).append(row)
    lines = []
    for (system, load), found in cases.items():
        parity = all(row.verdict is Verdict.PASS for row in found["parity", "plans"])
        misses = sum(row.verdict is Verdict.MISS for of in found.values() for row in of)
        line: dict[str, object] = {"system": system, "load": load, "req/s": f"{found['parity', 'plans'][0].rate:.3g}"}
        line |= {name: _cell(found[key][0]) for name, key in _TABLE.items()}
        lines.append(line | {"parity": parity, "verdict": f"{misses} MISS" if misses else "pass"})
    print_rows(lines)


def _cell(row: Row) -> str:
    error = "-" if row.error is None else f"{row.error:+.1%}"
    return f"{error} ~{row.spread:.1%}" if row.spread else error


def describe(row: Row) -> str:
    """A row in words, for the list of misses."""
    limit = 0.0 if row.tolerance is None else row.tolerance
    off = "undefined" if row.error is None else f"{row.error:+.2%}"
    values = "" if row.measured is None else f" simulated {_digits(row.simulated)}, measured {_digits(row.measured)}:"
    repeats = f", repeated runs differ by {row.spread:.1%}" if row.spread else ""
    return f"{row.system} {row.load}: {row.check} {row.quantity}{values} {off}, tolerance {limit:.0%}{repeats}"


def draw(folder: Path, results: Sequence[CaseResult]) -> None:
    """Write the scatter of the step times of all plan replays as step_times.png and .pdf."""
    parts: dict[str, list[CaseResult]] = {}
    for result in results:
        parts.setdefault(result.rows[0].system, []).append(result)
    axes = step_times(
        {
            system: (
                np.concatenate([result.predicted for result in found]) / NS_PER_MS,
                np.concatenate([result.measured for result in found]) / NS_PER_MS,
            )
            for system, found in parts.items()
        }
    )
    figure = axes.get_figure(root=True)
    assert figure is not None
    for suffix in ("png", "pdf"):
        with replacing(folder / f"step_times.{suffix}") as staged:
            figure.savefig(staged, format=suffix)
