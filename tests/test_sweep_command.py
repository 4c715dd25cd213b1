"""`kvsim sweep`: the grid, its checks, resuming, failures, signals, and what it prints."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvsim import cli
from kvsim.engine import Engine
from kvsim.errors import InvariantError
from kvsim.results import folder_lock
from tests.calls import Call, caller

SHORT = ("num_requests=5", "hydra.sweep.dir=here")
GRID = ("system=orca_max,vllm_v1", "rate=4,8", *SHORT)
FOLDERS = [f"system-{system}+rate-{rate}" for system in ("orca_max", "vllm_v1") for rate in (4, 8)]
LONG = ("system=vllm_v0,vllm_v1", "seed=0,1", "rate=2", "num_requests=1500")


Files = dict[str, bytes]


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Calls kvsim sweep inside this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return caller(monkeypatch, capfd, "sweep")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "import sys; from kvsim.cli import main; sys.exit(main())", "sweep", *arguments]


def results(folder: Path) -> Files:
    """All files but those that may differ from run to run."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name not in ("status.json", "env.json"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def states(folder: Path) -> list[str]:
    return [run["state"] for run in json.loads((folder / "index.json").read_text())]


def test_grid(sweep: Call, tmp_path: Path) -> None:
    reply = sweep(*GRID)
    assert (reply.code, reply.err) == (0, "INFO: results in here\n")
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == sorted([*FOLDERS, "index.json"])
    index = json.loads((tmp_path / "here/index.json").read_text())
    assert [run["folder"] for run in index] == FOLDERS
    assert [run["swept"] for run in index[:2]] == [{"system": "orca_max", "rate": rate} for rate in (4.0, 8.0)]
    for run in index:
        folder = tmp_path / "here" / run["folder"]
        (summary,) = json.loads((folder / "summary.json").read_text())
        assert run["swept"].items() <= summary.items()
        assert run["config_digest"] == json.loads((folder / "env.json").read_text())["config_digest"]
        assert {path.name for path in (folder / ".hydra").iterdir()} == {"config.yaml", "hydra.yaml", "overrides.yaml"}
    rows = [line.split() for line in reply.out.splitlines() if line.startswith((" orca", " vllm"))]
    assert [row[:3] for row in rows] == [[system, rate, "5"] for system in ("orca_max", "vllm_v1") for rate in "48"]


def test_a_point_is_the_run_of_the_same_configuration(
    sweep: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sweep("system=orca_max,vllm_v1", "rate=4", *SHORT)
    monkeypatch.setattr(sys, "argv", ["kvsim", "run", "system=vllm_v1", "rate=4", SHORT[0], "hydra.run.dir=alone"])
    assert cli.main() == 0
    assert results(tmp_path / "here/system-vllm_v1") == results(tmp_path / "alone")
    digests = [
        json.loads((tmp_path / folder / "env.json").read_text())["config_digest"]
        for folder in ("here/system-vllm_v1", "alone")
    ]
    assert digests[0] == digests[1]


def test_swept_keys_are_in_the_summary_but_for_the_engine(sweep: Call, tmp_path: Path) -> None:
    keys = ("kv.num_blocks=500,1000", "engine.fast_forward=true,false", "scheduler=fcfs", "workload.cv=choice(1.0)")
    assert sweep("rate=4", *keys, *SHORT).code == 0
    folder = tmp_path / "here/kv.num_blocks-500+engine.fast_forward-false+workload.cv-1"
    (summary,) = json.loads((folder / "summary.json").read_text())
    labels = (
        "system model hardware workload cost executor rate seed kv_num_blocks kv_pool_gib kv.num_blocks workload.cv"
    )
    assert list(summary)[:12] == labels.split()
    assert (summary["kv.num_blocks"], summary["workload.cv"]) == (500, 1.0)
    assert not any(key.startswith("engine") for key in summary)


def test_json_prints_what_the_table_shows(sweep: Call, tmp_path: Path) -> None:
    sweep(*GRID)
    reply = sweep(*GRID, "output=json")
    assert reply.err.startswith("INFO: 4 of 4 runs were finished and are kept\n")
    rows = json.loads(reply.out)
    for row, folder in zip(rows, FOLDERS, strict=True):
        (summary,) = json.loads((tmp_path / "here" / folder / "summary.json").read_text())
        assert row == {key: summary[key] for key in row}
        assert list(row)[:3] == ["system", "rate", "completed"]


BAD_INPUT = [
    (["rate=1,-1"], "point rate=-1: rate=-1.0: must be"),
    (["system=vllm_v1,vllm_v9", "rate=1"], "system=vllm_v9: no such option; did you mean 'vllm_v1'?"),
    (["rate=1,2", "kv.num_block=3"], "did you mean 'kv.num_blocks'?"),
    (["rate=1", "kv.num_block=3,4"], "point kv.num_block=3: unknown key 'kv.num_block'; did you mean"),
    (["rate=1,2", "+foo=3"], "unknown key 'foo'"),
    (["rate=1,1.0"], "point rate=1: is twice in the grid"),
    (["system=vllm_v1,vllm_v0"], "point system=vllm_v1: rate is not set"),
    (["rate=interval(1,2)"], "has no end of values"),
    (["rate=range(0,1000000000)"], "at most 10000"),
    (["rate=glob(*)"], "comes to no value"),
    (["rate=1,2", "hydra/launcher=basic,joblib"], "Sweeping over Hydra's configuration is not supported"),
    (["rate=1,2", "hydra/launcher=nowhere"], "hydra/launcher=nowhere: not installed; pip install 'kvsim[sweep]'"),
    (["experiment=quickstart,schedulers"], "experiment=quickstart: holds a sweep of its own"),
    (["rate=1,2", "sweep.dryrun=true"], "did you mean 'sweep.dry_run'?"),
    (["rate=1,2", "-m"], "say kvsim sweep KEY=a,b"),
    (["rate=1,2", "--run"], "option --run is not for a sweep"),
    (["rate=1,2", "--config-dir", "nowhere"], "--config-dir nowhere: no such folder"),
    (["rate=1,2", "--cfg", "job"], "a run takes one value for each key, kvsim sweep several"),
    (["rate=1,2", "hydra.sweep.dir=/dev/null/here"], "cannot use /dev/null/here: Not a directory; choose another"),
    (["rate=1,2", "hydra.sweep.dir=/proc/kvsim"], "cannot use /proc/kvsim"),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD_INPUT, ids=[" ".join(words) for words, _ in BAD_INPUT])
def test_one_bad_point_is_one_line_and_leaves_nothing(
    sweep: Call, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    reply = sweep(*arguments)
    assert reply.code == 2
    assert reply.out == ""
    assert reply.err.startswith("kvsim: ") and reply.err.count("\n") == 1
    assert expected in reply.err
    assert list(tmp_path.iterdir()) == []


def test_a_bad_point_touches_no_run_that_was_there(sweep: Call, tmp_path: Path) -> None:
    sweep(*GRID)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert sweep("system=orca_max,vllm_v1", "rate=4,-8", *SHORT).code == 2
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_dry_run_lists_the_points_and_runs_nothing(sweep: Call, tmp_path: Path) -> None:
    sweep("system=orca_max", "rate=4", "seed=0,1", *SHORT)
    before = results(tmp_path)
    wider = ("system=orca_max", "rate=4", "seed=0,1,2", *SHORT, "sweep.dry_run=true")
    reply = sweep(*wider, "output=json")
    assert (reply.code, reply.err) == (0, "")
    assert json.loads(reply.out) == [
        {"seed": seed, "folder": f"seed-{seed}", "finished": seed < 2} for seed in range(3)
    ]
    assert [line.split()[-1] for line in sweep(*wider).out.splitlines() if " seed-" in line] == ["yes", "yes", "no"]
    assert results(tmp_path) == before


def test_resume_keeps_what_is_finished_and_the_same(sweep: Call, tmp_path: Path) -> None:
    sweep(*GRID)
    whole = results(tmp_path)
    status = tmp_path / "here" / FOLDERS[0] / "status.json"
    kept = (tmp_path / "here" / FOLDERS[1] / "status.json").stat().st_mtime_ns
    status.unlink()  # as if killed
    (tmp_path / "here" / FOLDERS[0] / "requests.parquet").write_text("half")
    failed = tmp_path / "here" / FOLDERS[3] / "status.json"
    failed.write_text(json.dumps({"state": "failed", "error": "no"}))
    reply = sweep(*GRID)
    assert reply.code == 0 and reply.err.startswith("INFO: 2 of 4 runs were finished and are kept\n")
    assert (tmp_path / "here" / FOLDERS[1] / "status.json").stat().st_mtime_ns == kept
    assert status.exists() and results(tmp_path) == whole


@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_runs_with_other_values_of_keys_not_swept_are_not_overwritten(
    sweep: Call, tmp_path: Path, dry_run: str
) -> None:
    sweep("rate=4,8", "seed=0", *SHORT)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    reply = sweep("rate=2,4,8", "seed=7", *SHORT, f"sweep.dry_run={dry_run}")
    assert (reply.code, reply.out, reply.err.count("\n")) == (2, "", 1)
    assert reply.err.startswith("kvsim: here/rate-4: keys that are not swept had other values in this run; choose")
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert sweep("rate=4,8", "seed=0,7", *SHORT).code == 0


def test_a_changed_input_file_or_version_runs_again(
    sweep: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    grid = ("system=vllm_v0,vllm_v1", "workload=trace", "workload.path=trace.csv", "hydra.sweep.dir=here")
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_time_s,num_prompt_tokens,num_output_tokens\n0,10,5\n1,10,5\n")
    assert [row["completed"] for row in json.loads(sweep(*grid, "output=json").out)] == [2, 2]
    with trace.open("a") as rows:
        rows.write("2,10,5\n")
    reply = sweep(*grid, "output=json")
    assert [row["completed"] for row in json.loads(reply.out)] == [3, 3]
    assert reply.err.startswith("INFO: 2 of 2 runs were finished and are run again: an input file has changed\n")
    assert sweep(*grid).err.startswith("INFO: 2 of 2 runs were finished and are kept\n")
    monkeypatch.setattr("kvsim.__version__", "9.9")
    reply = sweep(*grid)
    assert reply.err.startswith("INFO: 2 of 2 runs were finished and are run again: kvsim had another version\n")


def test_an_empty_window_is_dashes(sweep: Call) -> None:
    reply = sweep("rate=4", "warmup=100000,200000", *SHORT)
    assert (reply.code, reply.err) == (0, "INFO: results in here\n")
    rows = [line.split() for line in reply.out.splitlines() if line.startswith((" 100000", " 200000"))]
    assert len(rows) == 2 and all("-" in row for row in rows)


def test_a_second_sweep_in_the_folder_is_refused(sweep: Call, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with folder_lock(tmp_path / "here"):
        reply = sweep("rate=4", *SHORT)
    assert (reply.code, reply.out) == (2, "") and not list((tmp_path / "here").iterdir())
    assert reply.err.startswith("kvsim: here is in use by another kvsim; wait until it has ended or choose")
    assert sweep("rate=4", *SHORT).code == 0


def test_a_wider_grid_keeps_the_runs_of_the_narrower(sweep: Call) -> None:
    sweep("system=orca_max,vllm_v1", "rate=4", *SHORT)
    assert "INFO: 2 of 3 runs" in sweep("system=orca_max,vllm_v1,vllm_v0", "rate=4", *SHORT).err


def test_failures_are_named_and_the_others_go_on(sweep: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = Engine.run
    calls = []

    def breach(self: Engine) -> object:
        calls.append(self)
        if len(calls) == 2:
            raise InvariantError("INV-blocks", "block 3 is owned twice")
        if len(calls) == 3:
            raise ZeroDivisionError("crash")
        return whole(self)

    monkeypatch.setattr(Engine, "run", breach)
    reply = sweep(*GRID)
    assert reply.code == 1
    assert reply.err.splitlines() == [
        f"ERROR: {FOLDERS[1]} failed: InvariantError: INV-blocks: block 3 is owned twice",
        f"ERROR: {FOLDERS[2]} failed: ZeroDivisionError: crash",
        "INFO: results in here",
    ]
    assert states(tmp_path / "here") == ["completed", "failed", "failed", "completed"]
    (row,) = [line.split() for line in reply.out.splitlines() if line.startswith(" orca_max") and " 8 " in line]
    assert set(row[2:]) == {"-"}
    reply = sweep(*GRID)
    assert reply.code == 0 and reply.err.startswith("INFO: 2 of 4")


def test_a_warning_of_many_points_is_given_once(sweep: Call) -> None:
    reply = sweep("system=vllm_v1,vllm_v0", "rate=4,8", "kv.num_slots=1600", *SHORT)
    warnings = [line for line in reply.err.splitlines() if line.startswith("WARNING: ")]
    assert len(warnings) == len(set(warnings)) == 2  # the watermark of vllm_v0 makes a second one


def test_points_that_reject_everything_are_named(sweep: Call) -> None:
    lengths = ("workload=synthetic", "workload.lengths.input_mean=30,3000")
    reply = sweep("rate=4", *lengths, *SHORT)
    assert reply.code == 0
    assert "WARNING: every request was rejected in workload.lengths.input_mean-3000;" in reply.err


@pytest.mark.parametrize(("experiment", "count"), [("quickstart", 5), ("memory_size", 6), ("schedulers", 3)])
def test_experiments_bring_a_grid_that_the_command_line_beats(sweep: Call, experiment: str, count: int) -> None:
    points = json.loads(sweep(f"experiment={experiment}", "rate=1", "sweep.dry_run=true", "output=json").out)
    assert len(points) == count
    assert all("rate" not in point for point in points)


def test_plug_in_folder(sweep: Call, tmp_path: Path) -> None:
    (tmp_path / "it's own/system").mkdir(parents=True)
    preset = "# @package _global_\ndefaults:\n  - override /scheduler: fcfs\nsystem:\n  name: mine\n"
    (tmp_path / "it's own/system/mine.yaml").write_text(preset)
    reply = sweep("system=mine,vllm_v1", "rate=4", *SHORT, "--config-dir", "it's own", "output=json")
    assert [row["system"] for row in json.loads(reply.out)] == ["mine", "vllm_v1"]


def test_help_and_configuration_are_shown(sweep: Call) -> None:
    reply = sweep("--help")
    assert reply.code == 0 and "hydra/launcher=joblib" in reply.out and "dry_run" in reply.out
    assert "block_size: 16" in sweep("rate=1", "--cfg", "job").out


def test_joblib_checks_all_points_before_the_first_job(sweep: Call, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs the extra kvsim[sweep]")
    for arguments, expected in (
        (("rate=1,-1", "hydra.launcher.n_jobs=1"), "point rate=-1: rate=-1.0: must be"),
        (("rate=-1", "seed=range(0,20)", "hydra.launcher.n_jobs=2"), "point seed=0: rate=-1.0: must be"),
        (("rate=1,2", "hydra.launcher.n_jobs=0"), "hydra.launcher.n_jobs=0: must be from 1"),
        (("rate=1,2", "hydra.launcher.n_job=1"), "unknown key 'hydra.launcher.n_job'"),
    ):
        reply = sweep(*arguments, "hydra/launcher=joblib")
        assert reply.code == 2 and expected in reply.err and reply.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    reply = sweep("rate=4", "kv.num_slots=640", *SHORT, "hydra/launcher=joblib", "hydra.launcher.n_jobs=1")
    assert reply.code == 0
    assert [line.split()[0] for line in reply.err.splitlines()] == ["WARNING:", "INFO:"]


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A long sweep, once its first run has ended; in a process group of its own."""
    process = subprocess.Popen(
        command(*LONG, *arguments), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(folder.glob("cut/*/status.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    return process


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """What the long sweep gives undisturbed, with the basic launcher."""
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run(command(*LONG, "hydra.sweep.dir=cut"), cwd=folder, check=True, capture_output=True)
    return results(folder / "cut")


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_killed_sweep_goes_on_to_the_same_bytes(tmp_path: Path, whole: Files, launcher: str) -> None:
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs the extra kvsim[sweep]")
    arguments = (f"hydra/launcher={launcher}", "hydra.sweep.dir=cut")
    process = start(tmp_path, *arguments)
    process.kill()
    process.wait(30)
    assert not (tmp_path / "cut/index.json").exists()
    if launcher == "joblib":
        time.sleep(0.5)
        before = results(tmp_path)
        time.sleep(0.5)
        assert results(tmp_path) == before  # no worker lives on
    reply = subprocess.run(command(*LONG, *arguments), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "runs were finished and are kept" in reply.stderr
    assert results(tmp_path / "cut") == whole


@pytest.mark.parametrize(
    ("launcher", "number", "code", "said"),
    [
        ("joblib", signal.SIGINT, 130, "kvsim: interrupted\n"),
        ("basic", signal.SIGTERM, 143, ""),
    ],
)
def test_a_signal_leaves_finished_runs_and_the_index(
    tmp_path: Path, launcher: str, number: signal.Signals, code: int, said: str
) -> None:
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs the extra kvsim[sweep]")
    process = start(tmp_path, f"hydra/launcher={launcher}", "hydra.sweep.dir=cut")
    os.killpg(process.pid, number)
    assert process.communicate(timeout=30)[1] == said
    assert process.returncode == code
    found = states(tmp_path / "cut")
    assert {"completed", "unfinished"} <= set(found)
    for run in json.loads((tmp_path / "cut/index.json").read_text()):
        assert (tmp_path / "cut" / run["folder"] / "summary.json").exists() == (run["state"] == "completed")


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_checked_points_and_one_bar_on_a_terminal(tmp_path: Path, launcher: str) -> None:
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs the extra kvsim[sweep]")
    terminal, stderr = pty.openpty()
    jobs = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=1") if launcher == "joblib" else ()
    process = subprocess.Popen(
        command("rate=2", "seed=0,1,2", "num_requests=2000", "hydra.sweep.dir=here", *jobs), cwd=tmp_path,
        stdout=subprocess.DEVNULL, stderr=stderr,
    )  # fmt: skip
    os.close(stderr)
    shown = b""
    try:
        while chunk := os.read(terminal, 4096):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    assert process.wait(30) == 0
    text = shown.decode()
    assert " of 3 points\r\x1b[K" in text
    assert "0/3" in text and ("1/3" in text or "2/3" in text)
    assert "simulated" not in text
