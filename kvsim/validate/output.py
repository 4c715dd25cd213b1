"""Results of a validation: a CSV file that grows by case, a table, the misses and a figure."""

from __future__ import annotations

import contextlib
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from kvsim.atomic import replacing, temporary
from kvsim.errors import ConfigError
from kvsim.plots.validation import step_times
from kvsim.results import folder_lock
from kvsim.table import print_rows
from kvsim.units import NS_PER_MS
from kvsim.validate.case import CaseResult
from kvsim.validate.compare import Row, Setting, Verdict

RESULTS = "results.csv"
KEY = ("system", "load", *Setting._fields)
"""Columns that tell cases apart."""
COLUMNS = (*(field.name for field in fields(Row)), "verdict", *Setting._fields, "date")

_TABLE = {
    "step": ("replay", "step_mean"),
    "bias": ("replay", "step_bias"),
    "tok/s": ("closed", "output_throughput"),
    "s/tok": ("closed", "mean_normalized_latency"),
    "TTFT\np50": ("closed", "median_ttft_ms"),
    "TTFT\np99": ("closed", "p99_ttft_ms"),
    "TPOT\np50": ("closed", "median_tpot_ms"),
    "TPOT\np99": ("closed", "p99_tpot_ms"),
}


@contextlib.contextmanager
def open_folder(path: Path) -> Iterator[Path]:
    """Inside, the folder of the results is there and ours alone; a new one in which nothing was left goes again.

    Raises:
        ConfigError: it cannot be made or written to, another validation writes to it, or its results.csv is not ours.
    """
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_empty, new)
        try:
            path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(folder_lock(path))
            probe = temporary(path / RESULTS)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ConfigError(f"validate.output={str(path)!r}: {error.strerror}; choose another folder") from error
        read_results(path / RESULTS)
        yield path


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def read_results(path: Path) -> list[dict[str, str]]:
    """The lines of a results.csv; none if it is not there.

    Raises:
        ConfigError: something else is there.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            names, lines = tuple(reader.fieldnames or ()), list(reader)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; choose another validate.output") from error
    except (ValueError, csv.Error) as error:
        raise ConfigError(f"{path}: is no table of kvsim validate ({error}); choose another validate.output") from error
    if names != COLUMNS:
        raise ConfigError(f"{path}: has other columns than kvsim validate writes; choose another validate.output")
    return lines


def write_results(folder: Path, result: CaseResult) -> None:
    """Put the rows of a case into results.csv, in place of those of the same one; others that are there stay."""
    path = folder / RESULTS
    about = {name: "" if value is None else str(value) for name, value in result.setting._asdict().items()}
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    ours = [
        {**{k: _text(v) for k, v in asdict(row).items()}, "verdict": row.verdict, **about, "date": date}
        for row in result.rows
    ]
    kept = [line for line in read_results(path) if any(line[name] != ours[0][name] for name in KEY)]
    with replacing(path) as staged, staged.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *ours])


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def count(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows missed, are noisy, passed."""
    verdicts = Counter(row.verdict for row in rows)
    return {"miss": verdicts[Verdict.MISS], "noisy": verdicts[Verdict.NOISY], "pass": verdicts[Verdict.PASS]}


def print_table(results: Sequence[CaseResult], output: str = "table") -> None:
    """One line a case, 100 columns at most: errors of the simulation in percent, number of misses and noisy rows.

    As ``json`` errors are shares of 1, under the names that results.csv has for them.
    """
    lines: list[dict[str, object]] = []
    for result in results:
        row, found = result.rows[0], {(row.check, row.quantity): row.error for row in reversed(result.rows)}
        counts = count(result.rows)
        if output == "json":
            errors = {f"{check}_{quantity}": found[check, quantity] for check, quantity in _TABLE.values()}
            lines.append({"system": row.system, "load": row.load, "rate": row.rate, **errors, **counts})
            continue
        cells = {name: _percent(found[key]) for name, key in _TABLE.items()}
        doubtful = f"{counts['miss']}/{counts['noisy']}"
        lines.append({"errors, %": f"{row.system} {row.load}", **cells, "miss/\nnoisy": doubtful})
    print_rows(lines, output)


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:+.1f}"


def describe(row: Row) -> str:
    """A row in words, for the list of misses."""
    limit = 0.0 if row.tolerance is None else row.tolerance
    off = "undefined" if row.error is None else f"{row.error:+.2%}"
    values = f" ({row.simulated:.4g} for {row.measured:.4g})" if row.simulated and row.measured else ""
    repeats = f", repeats differ by {row.spread:.1%}" if row.spread else ""
    return f"{row.system} {row.load}: {row.check} {row.quantity} {off}{values}, tolerance {limit:.0%}{repeats}"


def draw(folder: Path, results: Sequence[CaseResult]) -> None:
    """Write the scatter of the step times of these plan replays, and what they are, as step_times.png and .pdf."""
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
        },
        caption(results),
    )
    figure = axes.get_figure(root=True)
    assert figure is not None
    for suffix in ("png", "pdf"):
        with replacing(folder / f"step_times.{suffix}") as staged:
            figure.savefig(staged, format=suffix)


def caption(results: Sequence[CaseResult]) -> str:
    """What a figure of these cases covers, which may be less than what results.csv holds."""
    first = results[0].setting
    loads = ", ".join(dict.fromkeys(result.rows[0].load for result in results))
    return f"{first.model}, {first.workload}, {first.device or first.hardware}, cost={first.cost}\n{loads}"
