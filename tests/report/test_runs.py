"""Which runs are found, and what is said of those that did not finish."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvsim.errors import ConfigError
from kvsim.report.runs import find_runs
from kvsim.results import RunFolder

Copy = Callable[[str], Path]


def test_run_folder_sweep_folder_and_folder_of_folders(runs: Path) -> None:
    for folder, expected in ((runs / "system-orca_max+rate-1+seed-1", 1), (runs, 8), (runs.parent, 8)):
        finished, lost = find_runs([folder])
        assert (len(finished), lost) == (expected, [])
        assert finished[0].name.startswith(folder.name)


def test_run_given_twice_counts_once(runs: Path) -> None:
    finished, lost = find_runs([runs, runs / "system-orca_max+rate-1+seed-1", runs])
    assert len(finished) == 8
    assert not lost


def test_what_a_run_brings(runs: Path) -> None:
    run = find_runs([runs / "system-orca_max+rate-4+seed-1"])[0][0]
    assert run.summary["system"] == "orca_max"
    assert run.summary["rate"] == run.config["rate"] == 4.0
    assert run.config["kv.num_slots"] == 15728
    assert run.config["cost"] == "paper_a100"
    assert run.warmup_s == 10
    assert run.version is not None


def test_numbers_in_names_sort_by_value(one: Copy) -> None:
    for name in ("rate-10", "rate-2", "rate-1.5"):
        folder = one(name).parent
    assert [run.name for run in find_runs([folder])[0]] == ["copies/rate-1.5", "copies/rate-2", "copies/rate-10"]


def test_lost_runs_say_why(one: Copy) -> None:
    folder = one("finished").parent
    with pytest.raises(RuntimeError), RunFolder(one("failed")):
        raise RuntimeError("a law was broken")
    (one("killed") / "status.json").unlink()
    (one("unreadable") / "summary.json").write_text("[{}")
    (one("no_yaml") / ".hydra" / "config.yaml").write_text("{")
    (folder / "index.json").write_text(json.dumps([{"folder": "finished"}, {"folder": "absent"}]))
    finished, lost = find_runs([folder])
    assert [run.name for run in finished] == ["copies/finished"]
    found = {run.name.removeprefix("copies/"): run for run in lost}
    assert {name: run.state for name, run in found.items()} == {
        "absent": "not started",
        "failed": "failed",
        "killed": "killed",
        "unreadable": "unreadable",
        "no_yaml": "unreadable",
    }
    assert found["failed"].reason == "RuntimeError: a law was broken"
    assert "no status.json" in found["killed"].reason
    assert found["killed"].labels["system"] == "vllm_paper"
    assert found["killed"].labels["rate"] == 1.0


LABELLED = '"system": "a", "model": "m", "hardware": "h", "workload": "w", "rate": 1, "seed": 0'


@pytest.mark.parametrize(
    "content",
    [
        *("[]", "[1]", "{}", '[{"system": 3}]', "\x00", '[{"rate": 1}]', "[" * 100_000),
        f"[{{{LABELLED.replace('1', 'NaN')}}}]",
        f"[{{{LABELLED.replace('1', '1e999')}}}]",
        f"[{{{LABELLED.replace('1', '1' * 400)}}}]",
        f'[{{{LABELLED}, "p99_ttft_ms": NaN}}]',
        f'[{{{LABELLED}, "p99_ttft_ms": 1e999}}]',
        f'[{{{LABELLED}, "p99_ttft_ms": {"1" * 400}}}]',
        f'[{{{LABELLED}, "p99_ttft_ms": "fast"}}]',
        f"[{{{LABELLED.replace('0', '[]')}}}]",
    ],
    ids=lambda content: content[-30:],
)
def test_summary_of_another_shape_is_unreadable(one: Copy, content: str) -> None:
    folder = one("finished").parent
    (one("odd") / "summary.json").write_text(content)
    (lost,) = find_runs([folder])[1]
    assert lost.state == "unreadable"


def test_labels_and_numbers_are_a_summary(one: Copy) -> None:
    (one("bare") / "summary.json").write_text(f"[{{{LABELLED}}}]")
    assert not find_runs([one("finished").parent])[1]


@pytest.mark.parametrize("name", ["summary.json", "status.json", "env.json", "index.json", ".hydra/config.yaml"])
def test_pipe_is_not_waited_for(one: Copy, name: str) -> None:
    folder = one("finished").parent
    file = one("pipe") / name
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    finished, lost = find_runs([folder])
    harmless = name in ("env.json", "index.json")
    assert [run.name for run in finished] == ["copies/finished", *["copies/pipe"] * harmless]
    assert [run.state for run in lost] == ["unreadable"] * (not harmless)


@pytest.mark.parametrize("line", ["warmup: .inf", "warmup: [1]", "kv: &a [*a]", "kv: [{1: 2, b: 3}]"])
def test_configuration_of_another_program_is_unreadable(one: Copy, line: str) -> None:
    folder = one("finished").parent
    with (one("odd") / ".hydra" / "config.yaml").open("a") as config:
        config.write(f"\n{line}\n")
    finished, lost = find_runs([folder])
    assert ([run.name for run in finished], [run.state for run in lost]) == (["copies/finished"], ["unreadable"])


def test_run_without_saved_configuration_is_taken(one: Copy) -> None:
    run = one("bare")
    shutil.rmtree(run / ".hydra")
    (run / "env.json").unlink()
    (found,) = find_runs([run])[0]
    assert (dict(found.config), found.version, found.warmup_s) == ({}, None, 0)


def test_folder_without_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run in it"):
        find_runs([tmp_path])
    with pytest.raises(ConfigError, match="no such folder"):
        find_runs([tmp_path / "nowhere"])


def test_folder_without_finished_runs(one: Copy) -> None:
    folder = one("killed").parent
    (folder / "killed" / "status.json").unlink()
    with pytest.raises(ConfigError, match=r"none of 1 runs in .* finished; copies/killed: killed, no status.json"):
        find_runs([folder])
