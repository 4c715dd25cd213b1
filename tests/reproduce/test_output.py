"""CSV, PNG and table of a figure."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from kvsim.errors import ConfigError
from kvsim.plots.figures import latency_curves, paired_bars
from kvsim.reproduce.base import Band, Figure, Marker, Outcome, Row
from kvsim.reproduce.output import open_folder, print_table, write, write_csv

ROWS = [
    Row("slots", 15_700, 15_728, "KV slots", Band.relative(15_700, 0.04), digits=0),
    Row("tokens", 96.3, 90.0, "%", Band(95.0), digits=1, note="why."),
    Row("rate", None, 3.25, "req/s", None, note="off the axis."),
    Row("internal", 0.0, 0.25, "%", Band.absolute(0, 5), digits=1),
]
CURVE = {"vllm_paper": [(1.0, 0.04), (2.0, 1.12)]}
LABELS = {"vllm_paper": "vLLM"}


def outcome() -> Outcome:
    markers = [Marker("vLLM", "paper", 1.0, 0.04)]
    return Outcome(ROWS, lambda: latency_curves(CURVE, CURVE, LABELS, 0.2, 1.0), markers)


FIGURE = Figure("fig0", "a title", "a source", lambda _: outcome())


def test_files(tmp_path: Path) -> None:
    write(tmp_path, FIGURE, outcome())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig0.csv", "fig0.png", "fig0_points.csv"]
    assert (tmp_path / "fig0.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "fig0.csv").open(newline="") as file:
        slots, tokens, rate, _ = csv.DictReader(file)
    assert (slots["figure"], slots["paper"], slots["ours"], slots["verdict"]) == ("fig0", "15700", "15728", "pass")
    assert (float(slots["low"]), float(slots["high"])) == pytest.approx((15_072, 16_328))
    assert (tokens["high"], tokens["verdict"], tokens["note"]) == ("", "MISS", "why.")
    assert (rate["paper"], rate["low"], rate["verdict"]) == ("", "", "reported")
    assert (tmp_path / "fig0_points.csv").read_text() == "curve,source,rate,latency\nvLLM,paper,1.0,0.04\n"


def test_the_same_figure_gives_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        open_folder(tmp_path / name)
        write(tmp_path / name, FIGURE, outcome())
        contents.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert contents[0] == contents[1]


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "fig0.csv"
    path.write_text("old")
    with pytest.raises(ValueError, match="fields not in fieldnames"):
        write_csv(path, [{"a": 1.0}, {"b": 2.0}])
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_drawing_that_cannot_be_saved_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure as Drawing

    def half(_: Drawing, path: Path, **__: object) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Drawing, "savefig", half)
    (tmp_path / "fig0.png").write_bytes(b"old")
    with pytest.raises(OSError, match="disk full"):
        write(tmp_path, FIGURE, outcome())
    assert (tmp_path / "fig0.png").read_bytes() == b"old"
    assert not list(tmp_path.glob(".*"))


def test_the_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    open_folder(tmp_path / "a" / "b")
    assert not list((tmp_path / "a" / "b").iterdir())


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="choose another folder, -o DIR"):
        open_folder(tmp_path / "file" / "folder")


def test_table() -> None:
    out = io.StringIO()
    print_table(FIGURE, ROWS, Console(file=out, width=200, highlight=False, markup=False))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert lines[0] == "fig0: a title"
    assert "slots KV slots 15,700 15,728 +0.2 % 15,072 to 16,328 pass" in lines
    assert "tokens % 96.3 90.0 -6.3 points at least 95.0 MISS" in lines
    assert "rate req/s - 3.25 - - reported" in lines
    assert "internal % 0.0 0.2 +0.2 points -5.0 to 5.0 pass" in lines
    assert "MISS, tokens: why." in lines
    assert "reported, rate: off the axis." in lines


def test_a_drawing_cuts_the_axis_where_the_paper_does() -> None:
    axes = latency_curves(CURVE, CURVE, LABELS, 0.2, 1.0)
    assert axes.get_ylim() == (0, 1.0)
    assert axes.get_xlim() == pytest.approx((0, 2.2))


def test_bars_stand_in_pairs() -> None:
    axes = paired_bars({"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}, "y")
    assert [bar.get_height() for bar in axes.patches] == [1, 2, 3, 4]  # type: ignore[attr-defined]
