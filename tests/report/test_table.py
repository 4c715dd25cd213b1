"""The table in all its forms, against summary.json."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvsim.report.arrange import arrange
from kvsim.report.runs import LostRun, find_runs
from kvsim.report.table import COLUMNS, cells, header, rows, to_csv, to_markdown


def test_values_of_one_seed_are_those_of_the_summary(runs: Path) -> None:
    for folder in sorted(runs.glob("*seed-0")):
        (summary,) = json.loads((folder / "summary.json").read_text())
        settings = arrange(find_runs([folder])[0])[0]
        (row,) = rows(settings)
        (written,) = csv.DictReader(io.StringIO(to_csv(settings)))
        for label in ("system", "model", "hardware", "workload", "rate"):
            assert row[label] == summary[label]
        for column in COLUMNS:
            assert row[column.metric] == summary[column.metric]
            assert float(written[column.metric]) == summary[column.metric]


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


def test_undefined_metric_is_empty(one: Callable[[str], Path]) -> None:
    folder = one("undefined")
    (summary,) = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps([summary | {"p99_tpot_ms": None}]))
    settings = arrange(find_runs([folder])[0])[0]
    assert rows(settings)[0]["p99_tpot_ms"] is None
    assert cells(settings)[0][header(settings).index("TPOT p99, ms")].text == "–"
    (written,) = csv.DictReader(io.StringIO(to_csv(settings)))
    assert written["p99_tpot_ms"] == ""
