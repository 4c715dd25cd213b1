"""`kvsim reproduce`: names, exit codes, what it prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvsim import cli
from kvsim.plots.figures import paired_bars
from kvsim.reproduce import figures
from kvsim.reproduce.base import Band, Figure, Outcome, Row
from kvsim.reproduce.runner import Runner

Reply = tuple[int, str, str]
Call = Callable[..., Reply]


def figure(name: str, *bands: Band | None) -> Figure:
    """A figure of which our values are 1."""
    rows = [Row(f"value {index}", 1.0, 1.0, "", band) for index, band in enumerate(bands)]
    return Figure(name, "a title", "a source", lambda _: Outcome(rows, lambda: paired_bars({"a": 1}, {"a": 1}, "y")))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Calls `kvsim reproduce` inside this process, in an empty folder, with three made-up figures."""
    made_up = [figure("good", Band(0, 2), Band(1)), figure("bad", Band(0, 2), Band(3)), figure("shown", None)]
    monkeypatch.setattr(figures, "FIGURES", {item.name: item for item in made_up})
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Reply:
        monkeypatch.setattr(sys, "argv", ["kvsim", "reproduce", *arguments])
        return cli.main(), *capsys.readouterr()

    return run


def test_list(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["good", "bad", "shown"]
    assert json.loads(call("--list", "--json")[1])[0] == {"figure": "good", "title": "a title", "source": "a source"}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("names", "code"), [(["good"], 0), (["bad"], 1), (["shown"], 0), (["good", "shown"], 0), (["all"], 1)]
)
def test_exit_code(call: Call, names: list[str], code: int) -> None:
    assert call(*names)[0] == code


def test_files_and_table(call: Call, tmp_path: Path) -> None:
    _, out, err = call("bad", "good", "bad", "-o", "results")
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "bad.csv",
        "bad.png",
        "good.csv",
        "good.png",
    ]
    assert out.index("bad: a title") < out.index("good: a title")
    assert out.count("bad: a title") == 1
    assert "MISS, value 1: cause unknown" in out
    assert err == "CSV and PNG in results\n"


def test_json(call: Call) -> None:
    code, out, _ = call("all", "--json")
    rows = json.loads(out)
    assert code == 1
    assert [(row["figure"], row["verdict"]) for row in rows] == [
        ("good", "pass"),
        ("good", "pass"),
        ("bad", "pass"),
        ("bad", "MISS"),
        ("shown", "reported"),
    ]
    assert rows[1]["high"] is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["godo"], "unknown figure 'godo'; did you mean 'good'?; there are good, bad, shown, all"),
        (["good", "fig99"], "unknown figure 'fig99'"),
        ([], "name a figure: good, bad, shown or all"),
        (["good", "--jobs", "0"], "--jobs 0: must be from 1 to 1024"),
        (["good", "--jobs", "many"], "argument --jobs: invalid int value: 'many'"),
        (["good", "--jbos", "2"], "unknown option '--jbos'; did you mean '--jobs'?; see kvsim reproduce --help"),
        (["good", "--jsn"], "unknown option '--jsn'; did you mean '--json'?"),
        (["good", "-o", "taken"], "cannot write to taken: File exists; choose another folder, -o DIR"),
    ],
)
def test_wrong_usage(call: Call, tmp_path: Path, arguments: list[str], text: str) -> None:
    (tmp_path / "taken").touch()
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert text in err
    assert err.count("\n") == 1


def test_killed_process_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def reproduce(runner: Runner) -> Outcome:
        overrides = ("system=vllm_paper", "cost=constant", "rate=5", "num_requests=20")
        runner.mean("completed", *overrides, seeds=(0,))
        for process in runner._pool._processes.values():
            process.kill()
        runner.map(lambda seed: runner.mean("completed", *overrides, seeds=(seed,)), (1, 2))
        raise AssertionError("not reached")

    monkeypatch.setitem(figures.FIGURES, "killed", Figure("killed", "a title", "a source", reproduce))
    code, out, err = call("killed", "--jobs", "1")
    assert (code, out) == (1, "")
    assert err.startswith("kvsim: a process that simulates system=vllm_paper")
    assert err.count("\n") == 1


def test_help(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        call("--help")
    assert "usage: kvsim reproduce" in capsys.readouterr().out
