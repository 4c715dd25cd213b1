"""The table in all its forms, against summary.json."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvsim.report.arrange import arrange
from kvsim.report.points import Setting
from kvsim.report.runs import LostRun, find_runs
from kvsim.report.table import COLUMNS, cells, header, rows, to_csv, to_markdown
from kvsim.table import METRICS


def test_values_of_one_seed_are_those_of_the_summary(runs: Path) -> None:
    for folder in sorted(runs.glob("*seed-0")):
        (summary,) = json.loads((folder / "summary.json").read_text())
        settings = arrange(find_runs([folder])[0])[0]
        (row,) = rows(settings)
        (written,) = csv.DictReader(io.StringIO(to_csv(settings)))
        for label in ("system", "model", "hardware", "workload", "rate"):
            assert row[label] == summary[label]
        for metric in COLUMNS:
            assert row[metric] == summary[metric]
            assert float(written[metric]) == summary[metric]
            assert row[f"{metric}_runs"] == 1


def test_two_seeds(runs: Path) -> None:
    found = rows(arrange(find_runs([runs])[0])[0])
    assert [(row["rate"], row["system"], row["runs"], row["seeds"]) for row in found] == [
        (1.0, "orca_max", 2, "0 1"),
        (1.0, "vllm_paper", 2, "0 1"),
        (4.0, "orca_max", 2, "0 1"),
        (4.0, "vllm_paper", 2, "0 1"),
    ]
    both = [json.loads((runs / f"system-orca_max+rate-4+seed-{seed}/summary.json").read_text())[0] for seed in (0, 1)]
    values = [summary["p99_ttft_ms"] for summary in both]
    assert found[2]["p99_ttft_ms"] == pytest.approx(sum(values) / 2)
    assert (found[2]["p99_ttft_ms_low"], found[2]["p99_ttft_ms_high"]) == (min(values), max(values))
    assert found[2]["saturated_runs"] == sum(summary["saturated"] for summary in both) == 2


def test_text_for_people(runs: Path) -> None:
    settings = arrange(find_runs([runs])[0])[0]
    names, body = header(settings), cells(settings)
    assert all(len(row) == len(names) for row in body)
    saturated = body[2][names.index("saturated")]
    assert saturated.text == "2 of 2"
    assert " to " in body[2][names.index("TTFT p99, ms")].spread


def test_markdown_cells_cannot_break_out() -> None:
    text = to_markdown_of_lost(LostRun("a|b", "failed", "line\nof | text", {"rate": 2.0}))
    assert "| a\\|b | – | 2 | – | failed | line of \\| text |" in text.splitlines()


def to_markdown_of_lost(lost: LostRun) -> str:
    return to_markdown([], [lost], [])


def test_markdown_has_a_row_a_point(runs: Path) -> None:
    settings = arrange(find_runs([runs])[0])[0]
    text = to_markdown(settings, [], [("Model", "opt-13b")])
    assert "- Model: opt-13b" in text
    assert sum(line.startswith(("| orca_max", "| vllm_paper")) for line in text.splitlines()) == 4
    assert "left out" not in text


def copies(one: Callable[[str], Path], *changes: dict[str, object]) -> list[Setting]:
    """Settings of copies of a run, a seed each, with these changes of their summaries."""
    folders = []
    for seed, change in enumerate(changes):
        folders.append(one(f"copy-{seed}"))
        (summary,) = json.loads((folders[-1] / "summary.json").read_text())
        (folders[-1] / "summary.json").write_text(json.dumps([summary | {"seed": seed} | change]))
    return arrange(find_runs(folders)[0])[0]


@pytest.mark.parametrize(
    ("flags", "text", "number"),
    [
        ([None], "–", ""),
        ([None, None], "–", ""),
        ([True], "yes", "1"),
        ([False], "no", "0"),
        ([False, None], "no", "0"),
        ([True, None], "1 of 1", "1"),
        ([True, False, None], "1 of 2", "1"),
    ],
)
def test_saturation(one: Callable[[str], Path], flags: list[bool | None], text: str, number: str) -> None:
    settings = copies(one, *({"saturated": flag} for flag in flags))
    assert cells(settings)[0][header(settings).index("saturated")].text == text
    (written,) = csv.DictReader(io.StringIO(to_csv(settings)))
    assert written["saturated_runs"] == number


def test_seeds_without_a_value_are_told(one: Callable[[str], Path]) -> None:
    settings = copies(one, {"p99_tpot_ms": 20.0}, {"p99_tpot_ms": None}, {"p99_tpot_ms": 30.0})
    assert str(cells(settings)[0][header(settings).index("TPOT p99, ms")]) == "25.0 20.0 to 30.0 (2 of 3 seeds)"
    (written,) = csv.DictReader(io.StringIO(to_csv(settings)))
    assert (written["p99_tpot_ms"], written["p99_tpot_ms_runs"], written["p99_ttft_ms_runs"]) == ("25.0", "2", "3")


def test_metrics_are_called_and_written_as_in_other_tables() -> None:
    assert header([])[-len(COLUMNS) :] == [METRICS[metric].label for metric in COLUMNS]


def test_undefined_metric_is_empty(one: Callable[[str], Path]) -> None:
    folder = one("undefined")
    (summary,) = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps([summary | {"p99_tpot_ms": None}]))
    settings = arrange(find_runs([folder])[0])[0]
    assert rows(settings)[0]["p99_tpot_ms"] is None
    assert cells(settings)[0][header(settings).index("TPOT p99, ms")].text == "–"
    (written,) = csv.DictReader(io.StringIO(to_csv(settings)))
    assert (written["p99_tpot_ms"], written["p99_tpot_ms_runs"]) == ("", "0")
