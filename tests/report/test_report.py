"""The command and the page it writes."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kvsim import cli
from kvsim.cli.report import main as report_command
from kvsim.plots.colours import dark_colours
from kvsim.report.arrange import arrange
from kvsim.report.charts import gather, place_text
from kvsim.report.curve_figures import PARTIAL
from kvsim.report.facts import facts, headline
from kvsim.report.page import render, two_lines
from kvsim.report.runs import FinishedRun, find_runs
from kvsim.report.write import write_report
from kvsim.results import RunFolder

SYSTEMS = ("orca_max", "vllm_paper")
LIMIT_BYTES = 8_000_000
LOADING = {"src", "srcset", "data", "poster", "action", "formaction", "background", "xlink:href", "href"}


class Reply(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Reply]
Copy = Callable[[str], Path]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Calls kvsim report inside this process, in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def report(*arguments: object) -> Reply:
        monkeypatch.setattr(sys, "argv", ["kvsim", "report", *map(str, arguments)])
        return Reply(cli.main(), *capfd.readouterr())

    return report


class Page(HTMLParser):
    """What a test asks of a page: headings, text outside scripts, loading attributes, figures' data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.levels: list[int] = []
        self.text = ""
        self.loads: list[str] = []
        self.labels: list[str] = []
        self.ids: list[str] = []
        self.specs: list[dict[str, Any]] = []
        self._inside = ""
        self._json = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self._json = tag == "script" and ("type", "application/json") in attrs
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        self.loads += [value or "" for name, value in attrs if name in LOADING]
        self.labels += [value or "" for name, value in attrs if name == "aria-label" and ("role", "img") in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        self._inside, self._json = "", False

    def handle_data(self, data: str) -> None:
        if self._json:
            self.specs.append(json.loads(data))
        elif self._inside not in ("script", "style"):
            self.text += data


@pytest.fixture(scope="module")
def written(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on all runs."""
    folder = tmp_path_factory.mktemp("written")
    return write_report([runs], folder / "report.html", folder / "figures").html


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    return Page(written.read_text())


def test_page_needs_nothing_else(written: Path, page: Page) -> None:
    text = written.read_text()
    assert all(load.startswith("#") for load in page.loads)
    styles = re.findall(r"<style>.*?</style>", text, re.DOTALL)
    assert len(styles) == 1
    assert not re.search(r"url\(|@import|https?:", styles[0])
    assert "default-src 'none'" in text  # the browser refuses what would load anything
    assert "connect-src" not in text
    assert text.count("plotly.js v") == 1
    assert len(text.encode()) < LIMIT_BYTES


def test_page_shows_every_system_and_what_was_compared(page: Page) -> None:
    for word in (*SYSTEMS, "opt-13b", "a100-40gb", "sharegpt", "paper_a100", "10 s, left out", "15,728 tokens"):
        assert word in page.text
    curves = page.specs[0]["data"][0]
    assert {trace["legendgroup"] for trace in curves} == set(SYSTEMS)


def test_headings_and_labels_in_order(page: Page) -> None:
    assert page.levels[0] == 1
    assert page.levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(page.levels, page.levels[1:], strict=False))
    assert len(page.labels) == len(page.specs)
    assert all(label.endswith(".") for label in page.labels)
    assert len(set(page.ids)) == len(page.ids)


def test_figures_show_the_table(runs: Path, page: Page) -> None:
    folders = [runs / f"system-vllm_paper+rate-4+seed-{seed}" for seed in (0, 1)]
    summaries = [json.loads((folder / "summary.json").read_text())[0] for folder in folders]
    mean = sum(summary["mean_normalized_latency"] for summary in summaries) / 2
    line = next(trace for trace in page.specs[0]["data"][0] if trace.get("name") == "vllm_paper")
    assert line["x"] == [1, 4]
    assert line["y"][1] == pytest.approx(mean, rel=1e-5)
    assert page.specs[0]["layout"]["yaxis"]["type"] == "log"
    bars = next(spec for spec in page.specs if spec["layout"].get("barmode") == "stack")
    assert len(bars["data"]) == 2  # rates to choose from
    for column in zip(*(trace["x"] for trace in bars["data"][1]), strict=True):
        assert sum(column) == pytest.approx(100, abs=0.01)


def test_saturated_points_are_hollow(page: Page) -> None:
    line = next(trace for trace in page.specs[0]["data"][0] if trace.get("name") == "orca_max")
    assert line["marker"]["symbol"][1] == "triangle-up-open"


def test_every_colour_has_one_for_the_dark(page: Page) -> None:
    used = set(re.findall(r'"(?:color|fillcolor)": "(#[0-9a-f]{6})"', json.dumps(page.specs)))
    assert used
    assert used <= dark_colours().keys()


def test_files_beside_the_page(written: Path) -> None:
    assert {path.name for path in written.parent.iterdir()} == {"report.html", "report.csv", "report.md", "figures"}
    names = {path.name for path in (written.parent / "figures").iterdir()}
    assert names == {
        *(f"{name}.png" for name in ("normalized_latency", "ttft", "tpot", "batch_size", "kv_split")),
        *(f"{name}_cdf.png" for name in ("ttft", "tpot", "e2el")),
        *(f"timeline-{system}.png" for system in SYSTEMS),
    }
    for name in names:
        assert (written.parent / "figures" / name).read_bytes().startswith(b"\x89PNG")


def test_same_runs_same_bytes(runs: Path, written: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(runs, tmp_path / "moved" / runs.name)
    code = "import sys; from kvsim.cli import main; sys.exit(main())"
    words = ["report", str(elsewhere), "-o", str(tmp_path / "again" / "report.html")]
    subprocess.run([sys.executable, "-c", code, *words], check=True, env=os.environ | {"PYTHONHASHSEED": "7"})
    first = sorted(path for path in written.parent.rglob("*") if path.is_file())
    assert first
    for path in first:
        assert (tmp_path / "again" / path.relative_to(written.parent)).read_bytes() == path.read_bytes(), path.name


def test_page_lies_in_the_folder_given(call: Call, one: Copy) -> None:
    folder = one("single")
    assert call(folder) == (0, f"{folder}/report.html\n", "")
    assert (folder / "report.html").exists()
    assert (folder / "figures" / "kv_split.png").exists()
    assert not list(Path().iterdir())
    assert call(folder, "--json").out.count('"system"') == 1  # a report in it makes no difference


def test_page_on_several_folders_lies_in_the_current_one(call: Call, one: Copy) -> None:
    assert call(one("first"), one("second")).out == "report.html\n"
    assert {path.name for path in Path().iterdir()} == {"report.html", "report.csv", "report.md", "figures"}


def test_help_says_where_the_page_lies(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        report_command(["--help"])
    assert "report.html in DIR; of several DIR, in the current folder" in " ".join(capsys.readouterr().out.split())


def test_json_is_the_table(call: Call, runs: Path) -> None:
    reply = call(runs / "system-orca_max+rate-1+seed-0", "-o", "deep/er/x.html", "--figures", "pictures", "--json")
    table = json.loads(reply.out)
    with Path("deep/er/x.csv").open() as stream:
        assert [row["system"] for row in csv.DictReader(stream)] == [row["system"] for row in table]
    assert len(table) == 1
    assert Path("pictures/ttft.png").exists()


def test_lost_runs_are_shown(call: Call, one: Copy) -> None:
    folder = one("finished").parent
    (one("killed") / "status.json").unlink()
    with pytest.raises(RuntimeError), RunFolder(one("failed")):
        raise RuntimeError("<b>out of blocks</b>")
    reply = call(folder, "-o", "report.html")
    assert (reply.code, reply.out) == (0, "report.html\n")
    assert reply.err == "kvsim: left out, and listed on the page: 1 failed, 1 killed\n"
    shown = Page(Path("report.html").read_text())
    assert "copies/killed" in shown.text
    assert "RuntimeError: <b>out of blocks</b>" in shown.text  # as text
    assert "| copies/failed | vllm_paper | 1 | 0 | failed |" in Path("report.md").read_text()


def rendered(folder: Path) -> str:
    return render(gather(arrange(find_runs([folder])[0])[0]), [])


def test_run_whose_samples_are_gone_stays_in_the_table(one: Copy) -> None:
    folder = one("bare")
    for name in ("requests", "steps", "memory"):
        (folder / f"{name}.parquet").unlink()
    text = Page(rendered(folder)).text
    assert "Without a distribution: cannot read" in text
    assert "Without a timeline: cannot read" in text
    assert "Normalized latency against request rate" in text


def test_names_cannot_break_out_of_the_page(one: Copy) -> None:
    folder = one("odd")
    (summary,) = json.loads((folder / "summary.json").read_text())
    name = "</script><script>alert(1)</script>&amp;"
    (folder / "summary.json").write_text(json.dumps([summary | {"system": name}]))
    html = rendered(folder)
    shown = Page(html)
    assert name in shown.text
    assert shown.specs[0]["data"][0][0]["name"] == name
    assert html.count("alert(1)</script>") == 0


def test_run_without_a_rate_has_no_curves(one: Copy) -> None:
    folder = one("trace")
    (summary,) = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps([summary | {"rate": None}]))
    shown = Page(rendered(folder))
    assert "against request rate" not in shown.text
    assert "Distribution of latencies" in shown.text


def test_headline_is_short() -> None:
    names = ("a", "b", "c", "d", "e")
    labels = {"model": "m", "hardware": "h", "workload": "w", "rate": 2.0, "seed": 0}
    found = [
        FinishedRun(
            f"{name}{size}", Path(), labels | {"system": name}, {"kv.num_blocks": size, "kv.block_size": 16}, "1"
        )
        for name in names
        for size in range(100, 110)
    ]
    settings = arrange(found)[0]
    assert headline(settings) == "a, b, c and 2 more over kv.num_blocks"
    assert dict(facts(settings))["KV memory"] == "100–109 blocks of 16 tokens"
    assert dict(facts(settings))["kv.num_blocks"] == "100, 101, …, 109 (10)"
    assert headline(settings[:1]) == headline(settings)
    assert headline(arrange(found[:1])[0]) == "a"


def test_heading_breaks_in_the_middle() -> None:
    assert two_lines("KV external and free") == ["KV external", "and free"]
    assert two_lines("kv.num_blocks") == ["kv.", "num_blocks"]
    assert two_lines("saturated") == ["saturated"]


@pytest.mark.filterwarnings("error")
def test_long_names_have_room_everywhere(one: Copy, tmp_path: Path) -> None:
    for index, name in enumerate(("$x" * 300, "$x_{", "y" * 400, "word " * 100)):
        folder = one(f"long-{index}")
        (summary,) = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps([summary | {"system": name, "workload": name * (index % 2)}]))
        if index == 2:
            shutil.rmtree(folder / ".hydra")
    figures = tmp_path / "figures"
    write_report([folder.parent], tmp_path / "report.html", figures)
    names = [path.name for path in figures.iterdir()]
    assert sum("timeline" in name for name in names) == 4
    assert all(len(name.encode()) < 255 for name in names)


def row_is_marked(html: str) -> bool:
    return '<tr class="saturated">' in html


@pytest.mark.parametrize(("flag", "marked"), [(True, True), (False, False), (None, False)])
def test_row_of_a_saturated_run_is_marked(one: Copy, flag: bool | None, marked: bool) -> None:
    folder = one("flagged")
    (summary,) = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps([summary | {"saturated": flag}]))
    assert row_is_marked(rendered(folder)) == marked


@pytest.mark.parametrize(
    ("process", "words"),
    [
        ("all_at_once", "arrivals all at once"),
        ("trace", "the trace's own times"),
        (None, "arrivals not recorded"),
    ],
)
def test_what_stands_for_a_rate(one: Copy, process: str | None, words: str) -> None:
    folder = one("unrated")
    (summary,) = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps([summary | {"rate": None}]))
    config = folder / ".hydra" / "config.yaml"
    loaded = yaml.safe_load(config.read_text())
    loaded["workload"]["arrivals"] = process
    config.write_text(yaml.safe_dump(loaded))
    settings = arrange(find_runs([folder])[0])[0]
    assert dict(facts(settings))["Request rate"] == words
    assert place_text(settings[0], None) == words
    assert f"over time, at {words}" in Page(rendered(folder)).text


def test_mean_of_some_seeds_is_told_under_the_curves(one: Copy) -> None:
    folders = [one("whole"), one("partial")]
    assert PARTIAL not in rendered(folders[0])
    (summary,) = json.loads((folders[1] / "summary.json").read_text())
    (folders[1] / "summary.json").write_text(json.dumps([summary | {"seed": 1, "p99_tpot_ms": None}]))
    assert PARTIAL in rendered(folders[0].parent)


def test_figures_of_an_earlier_report_go_and_others_stay(runs: Path, one: Copy, tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    write_report([runs], tmp_path / "report.html", figures)
    before = {path.name for path in figures.iterdir()}
    assert "timeline-orca_max.png" in before
    shutil.copy(figures / "timeline-orca_max.png", figures / "timeline-kept.png")  # a copy is its owner's
    (figures / "timeline-mine.png").write_bytes(b"mine")
    (figures / "notes.txt").write_text("mine")
    (figures / "folder.png").mkdir()
    write_report([one("alone")], tmp_path / "report.html", figures)
    after = {path.name for path in figures.iterdir()}
    foreign = {"timeline-kept.png", "timeline-mine.png", "notes.txt", "folder.png"}
    assert after == before - {"timeline-orca_max.png"} | foreign


@pytest.mark.parametrize("library", ["plotly", "jinja2"])
def test_missing_extra(call: Call, runs: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    reply = call(runs)
    expected = f"kvsim: a report needs {library}, which is not installed; pip install 'kvsim[report]'\n"
    assert reply == (2, "", expected)
    assert not list(Path().iterdir())


def test_wrong_usage(call: Call, runs: Path) -> None:
    Path("empty").mkdir()
    Path("file").touch()
    for arguments, message in (
        ([], "arguments are required: DIR"),
        (["empty"], "empty: no run in it; give a folder that"),
        (["nowhere"], "nowhere: no such folder"),
        (["file"], "file: no such folder"),
        ([runs, "-o", "report.pdf"], "must end in .html"),
        ([runs, "-o", "file/report.html"], "cannot write file"),
        ([runs, "--figure", "x"], "unknown option '--figure'; did you mean '--figures'?"),
    ):
        reply = call(*arguments)
        assert (reply.code, reply.out) == (2, "")
        assert message in reply.err
        assert reply.err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["empty", "file"]
