"""The table in all its forms, against summary.json."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kvsim.report.arrange import arrange
from kvsim.report.facts import facts, headline
from kvsim.report.points import Setting
from kvsim.report.runs import LostRun, find_runs
from kvsim.report.table import COLUMNS, LATENCIES, Cell, rows, table, to_csv, to_markdown
from kvsim.table import METRICS

Copy = Callable[[str], Path]


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
            assert (float(written[metric]) if written[metric] else None) == summary[metric]
            assert row[f"{metric}_runs"] == (summary[metric] is not None)


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
    shown = table(settings)
    names, body = shown.header, shown.rows
    assert all(len(row) == len(names) for row in body)
    assert (names[: shown.num_keys], names[2:9]) == (
        ["system", "rate, req/s"],
        [METRICS[metric].label for metric in LATENCIES],
    )
    saturated = body[2][names.index("saturated")]
    assert saturated.text == "2 of 2"
    assert shown.saturated[2]
    assert " to " in body[2][names.index("TTFT p99, ms")].spread
    assert "seeds" not in names
    assert shown.note.endswith("2 seeds a point.")


def test_columns_of_zeros_are_told_below(one: Copy) -> None:
    zeros = dict.fromkeys(("rejected", "failed", "unfinished", "num_preemptions", "kv_reserved_frac"), 0)
    shown = table(copies(one, zeros | {"saturated": False}, zeros | {"saturated": False, "failed": 1}))
    for name in ("rejected", "unfinished", "preemptions", "KV reserved", "saturated", "seeds"):
        assert name not in shown.header
    assert "failed" in shown.header
    assert shown.note == (
        "No run saturated. 0 in every run: rejected, unfinished, KV reserved, preemptions. 2 seeds a point."
    )


def test_goodput_is_a_column_where_a_run_has_it(one: Copy) -> None:
    label = METRICS["request_goodput"].label
    assert label not in table(copies(one, {"request_goodput": None})).header
    shutil.rmtree(one("again").parent)
    assert cell(copies(one, {"request_goodput": 0.5}), label).text == "0.500"


def test_swept_keys_are_columns(one: Copy) -> None:
    folders = []
    for cost in ("roofline", "paper_a100"):
        for size in (600, 1300):
            folders.append(one(f"{cost}-{size}"))
            hydra = folders[-1] / ".hydra"
            loaded = yaml.safe_load((hydra / "config.yaml").read_text())
            loaded["kv"] |= {"num_slots": None, "num_blocks": size}
            (hydra / "config.yaml").write_text(yaml.safe_dump(loaded))
            options = yaml.safe_load((hydra / "hydra.yaml").read_text())
            options["hydra"]["runtime"]["choices"]["cost"] = cost
            (hydra / "hydra.yaml").write_text(yaml.safe_dump(options))
    settings = arrange(find_runs(folders)[0])[0]
    shown = table(settings)
    assert shown.header[:3] == ["system", "kv.num_blocks", "cost"] and shown.num_keys == 3
    assert [[cell.text for cell in row[:3]] for row in shown.rows] == [
        ["vllm_paper", size, cost] for size in ("600", "1300") for cost in ("roofline", "paper_a100")
    ]
    assert [(row["kv.num_blocks"], row["cost"]) for row in rows(settings)[1:3]] == [
        (600, "paper_a100"),
        (1300, "roofline"),
    ]
    assert dict(facts(settings))["KV memory"] == "600–1,300 blocks of 16 tokens"
    assert headline(settings) == "vllm_paper over kv.num_blocks and cost"


def test_markdown_cells_cannot_break_out() -> None:
    text = to_markdown_of_lost(LostRun("a|b", "failed", "line\nof | text", {"rate": 2.0}))
    assert "| a\\|b | – | 2 | – | failed | line of \\| text |" in text.splitlines()
    text = to_markdown_of_lost(LostRun("<b>&[x](y)", "failed", "\\|`", {}))
    assert "| &lt;b&gt;&amp;\\[x](y) | – | – | – | failed | \\\\\\|\\` |" in text.splitlines()


def to_markdown_of_lost(lost: LostRun) -> str:
    return to_markdown([], [lost], [])


def test_markdown_has_a_row_a_point(runs: Path) -> None:
    settings = arrange(find_runs([runs])[0])[0]
    text = to_markdown(settings, [], [("Model", "opt-13b")])
    assert "- Model: opt-13b" in text
    assert sum(line.startswith(("| orca_max", "| vllm_paper")) for line in text.splitlines()) == 4
    assert "left out" not in text


def cell(settings: list[Setting], heading: str) -> Cell:
    shown = table(settings)
    return shown.rows[0][shown.header.index(heading)]


def copies(one: Copy, *changes: dict[str, object]) -> list[Setting]:
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
def test_saturation(one: Copy, flags: list[bool | None], text: str, number: str) -> None:
    settings = copies(one, *({"saturated": flag} for flag in flags))
    assert flag_text(settings) == text
    (written,) = csv.DictReader(io.StringIO(to_csv(settings)))
    assert written["saturated_runs"] == number


def flag_text(settings: list[Setting]) -> str:
    shown = table(settings)
    if "saturated" in shown.header:
        return shown.rows[0][shown.header.index("saturated")].text
    assert "No run saturated." in shown.note
    return "no"


def test_seeds_without_a_value_are_told(one: Copy) -> None:
    settings = copies(one, {"p99_tpot_ms": 20.0}, {"p99_tpot_ms": None}, {"p99_tpot_ms": 30.0})
    assert str(cell(settings, "TPOT p99, ms")) == "25.0 20.0 to 30.0 (2 of 3 seeds)"
    (written,) = csv.DictReader(io.StringIO(to_csv(settings)))
    assert (written["p99_tpot_ms"], written["p99_tpot_ms_runs"], written["p99_ttft_ms_runs"]) == ("25.0", "2", "3")


def test_metrics_are_called_and_written_as_in_other_tables() -> None:
    labels = [METRICS[metric].label for metric in COLUMNS if metric != "request_goodput"]
    assert [name for name in table([]).header if name in labels] == labels


def test_undefined_metric_is_empty(one: Copy) -> None:
    folder = one("undefined")
    (summary,) = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps([summary | {"p99_tpot_ms": None}]))
    settings = arrange(find_runs([folder])[0])[0]
    assert rows(settings)[0]["p99_tpot_ms"] is None
    assert cell(settings, "TPOT p99, ms").text == "–"
    (written,) = csv.DictReader(io.StringIO(to_csv(settings)))
    assert (written["p99_tpot_ms"], written["p99_tpot_ms_runs"]) == ("", "0")
