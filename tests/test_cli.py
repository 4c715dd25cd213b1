"""The command line: exit codes, one-line errors, suggestions, folders, start-up time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvsim import cli
from kvsim.errors import InvariantError
from kvsim.results import RunFolder
from tests.calls import Call, caller

SHORT = ("rate=5", "num_requests=5")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Calls kvsim inside this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return caller(monkeypatch, capfd)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "import sys; from kvsim.cli import main; sys.exit(main())", *arguments]


BAD_INPUT = [
    (["--cgf", "job"], "unknown option '--cgf'; did you mean '--cfg'?"),
    (["--cfg", "jobs"], "must be one of job, hydra, all"),
    (["--cfg"], "needs a value"),
    (["--resolve"], "add --cfg job"),
    (["--cfg", "job", "--info"], "exclude each other"),
    (["rate"], "'rate' is not KEY=VALUE"),
    (["=3"], "is not KEY=VALUE"),
    (["systm=vllm_v1"], "unknown key 'systm'; did you mean 'system'?"),
    (["kv.numblocks=3"], "did you mean 'kv.num_blocks'?"),
    (["+kv.numblocks=3", "rate=1"], "did you mean 'kv.num_blocks'?"),
    (["++foo=3", "rate=1"], "unknown key 'foo'"),
    (["rate=1", "scheduler.max_num_seq=3"], "did you mean 'scheduler.max_num_seqs'?"),
    (["rate=1", "workload=synthetic", "workload.lengths.inputmean=3"], "did you mean 'workload.lengths.input_mean'?"),
    (["rate=1", "executor.device=cpu"], "executor.device: is a key of executor=gpu and not of the option chosen"),
    (["rate=1", "kv={numblocks:3}"], "did you mean 'kv.num_blocks'?"),
    (["rate=1", "+scheduler.foo=3"], "scheduler: ChunkedScheduler takes other keys"),
    (["system=vllm_v9"], "system=vllm_v9: no such option; did you mean 'vllm_v1'?; there are fastertransformer, "),
    (["system=orca_max,vllm_v1"], "a run takes one value for each key"),
    (["system=[a"], "system=[a"),
    (["~rate"], "cannot be taken away"),
    (["rate=1", "scheduler=null"], "Config group override must be"),
    (["rate=1", "scheduler=base"], "has no _target_"),
    ([], "rate is not set"),
    (["rate=-1"], "rate=-1.0"),
    (["rate=text"], "rate=text: Value 'text' of type 'str' could not be converted to Float"),
    (["rate=true"], "rate=true"),
    (["rate=nan"], "rate=nan"),
    (["rate=${nowhere}"], "Interpolation key 'nowhere' not found"),
    (["rate=1", "output=xml"], "expected one of [table, json]"),
    (["rate=1", "seed=-1"], "seed=-1"),
    (["rate=1", "kv.block_size=24"], "kv.block_size=24: must be a power of two from 1 to 256; use 16"),
    (["rate=1", "workload=synthetic", "workload.lengths.input_mean=nan"], "workload.lengths.input_mean=nan"),
    (["rate=1", "kv.num_blocks=0"], "kv.num_blocks=0: must be a whole number from 1"),
    (["rate=1", "kv.num_slots=15"], "kv.num_slots=15: must be from 16, one block"),
    (["rate=1", "kv.num_blocks=9", "kv.num_slots=99"], "give one of them"),
    (["rate=1", "kv.num_blocks=1", "kv.block_size=1"], "max_model_len would be 1"),
    (["rate=1", "scheduler.max_model_len=4096"], "must be a whole number from 2 to 2048; the limit is opt-13b"),
    (["rate=1", "duration=60", "warmup=60"], "warmup=60: must be below duration=60 s"),
    (["rate=1", "warmup=-1"], "warmup=-1"),
    (["rate=1", "duration=inf"], "duration=inf"),
    (["rate=1", "engine.drain=false"], "give for example duration=600"),
    (["executor=replay", "rate=1"], "executor.path is not set; give executor.path=VALUE"),
    (["executor=replay", "rate=1", "executor.path=nowhere"], "executor.path='nowhere'"),
    (["rate=1", "model._target_=no.such"], "Error locating target 'no.such'"),
    (["rate=1", "sweep.dry_run=true"], "sweep.dry_run=true: is for kvsim sweep"),
    (["rate=1", "hydra.run.dir=/dev/null/run"], "cannot use /dev/null/run: Not a directory"),
    (["rate=1", "hydra.run.dir=/proc/kvsim"], "cannot use /proc/kvsim"),
    (["rate=1", "--config-dir", "nowhere"], "nowhere"),
]


@pytest.mark.parametrize(
    ("arguments", "expected"), BAD_INPUT, ids=[" ".join(words) or "none" for words, _ in BAD_INPUT]
)
def test_bad_input_is_one_line_and_leaves_nothing(
    call: Call, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    reply = call("run", *arguments)
    assert reply.code == 2
    assert reply.out == ""
    assert reply.err.startswith("kvsim: ") and reply.err.count("\n") == 1 and "Traceback" not in reply.err
    assert expected in reply.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    for folder in ("locked", "locked/run"):
        reply = call("run", *SHORT, f"hydra.run.dir={folder}")
        assert reply.code == 2 and reply.err.count("\n") == 1
        assert list((tmp_path / "locked").iterdir()) == []


def test_a_wrong_run_touches_no_folder_that_was_there(call: Call, tmp_path: Path) -> None:
    call("run", *SHORT, "hydra.run.dir=old/run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert call("run", "rate=-1", "hydra.run.dir=old/run").code == 2
    assert call("run", "rate=-1", "hydra.run.dir=old/run/deeper/still").code == 2
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "empty").mkdir()
    assert call("run", "rate=-1", "hydra.run.dir=empty").code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "old"]


def test_a_configuration_that_proves_wrong_late_leaves_nothing(call: Call, tmp_path: Path) -> None:
    assert call("run", "rate=5", "num_requests=3", "hydra.run.dir=short").code == 0
    reply = call("run", *SHORT, "executor=replay", "executor.path=short", "hydra.run.dir=long/run")
    assert reply.code == 2 and "recorded" in reply.err and reply.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["short"]


def test_run_writes_its_folder(call: Call, tmp_path: Path) -> None:
    reply = call("run", *SHORT, "hydra.run.dir=here", "engine.record_plans=true", "engine.record_blocks=true")
    assert reply.code == 0
    assert reply.err == "INFO: results in here\n"
    files = {str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*") if path.is_file()}
    assert files == {
        *(f".hydra/{name}.yaml" for name in ("config", "hydra", "overrides")),
        *(f"{name}.json" for name in ("summary", "status", "env")),
        *(f"{name}.parquet" for name in ("requests", "steps", "memory", "blocks")),
        "plans.jsonl.gz",
    }
    (summary,) = json.loads((tmp_path / "here/summary.json").read_text())
    assert (summary["system"], summary["workload"], summary["rate"], summary["completed"]) == (
        "vllm_v1",
        "sharegpt",
        5,
        5,
    )
    assert not any(name.startswith("engine") for name in summary)


def test_json_prints_what_the_table_shows(call: Call, tmp_path: Path) -> None:
    table = call("run", *SHORT, "hydra.run.dir=a").out
    (shown,) = json.loads(call("run", *SHORT, "hydra.run.dir=b", "output=json").out)
    (summary,) = json.loads((tmp_path / "a/summary.json").read_text())
    assert shown == {name: summary[name] for name in shown}
    assert len([line for line in table.splitlines() if line.strip()]) == len(shown) + 1  # and a rule
    assert f"{shown['p99_ttft_ms']:.1f}" in table


def test_default_folder_is_dated(call: Call, tmp_path: Path) -> None:
    assert call("run", *SHORT).code == 0
    assert len(list(tmp_path.glob("outputs/*/*/status.json"))) == 1


def test_a_lowered_length_is_one_warning(call: Call) -> None:
    reply = call("run", *SHORT, "kv.num_blocks=40", "hydra.run.dir=here")
    assert reply.code == 0
    warning, results = reply.err.splitlines()
    assert warning.startswith("WARNING: max_model_len lowered from 2048 to 640, the longest sequence")
    assert results.startswith("INFO: ")


def test_all_rejected_is_a_warning_and_no_error(call: Call) -> None:
    lengths = ("workload=synthetic", "workload.lengths.input_mean=3000")
    reply = call("run", *SHORT, *lengths, "hydra.run.dir=here")
    assert reply.code == 0
    assert reply.err.startswith("WARNING: every request was rejected")


def test_an_empty_window_is_a_warning_and_no_error(call: Call) -> None:
    reply = call("run", *SHORT, "warmup=100000", "hydra.run.dir=here")
    assert reply.code == 0
    assert reply.err.startswith("WARNING: no request was measured: none arrived after warmup=100000 s; lower it")


@pytest.mark.parametrize("new", [True, False])
def test_a_folder_in_use_stays_whole(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, new: bool) -> None:
    (tmp_path / "here").mkdir()
    if new:  # as if both had started at once
        monkeypatch.setattr("kvsim.cli.folder.Path.exists", lambda path: path.name != "here")
    with RunFolder(tmp_path / "here") as other:
        other.write_summary({})
        reply = call("run", *SHORT, "hydra.run.dir=here")
        assert reply.code == 2 and reply.err.count("\n") == 1
        assert "here is in use by another kvsim; wait" in reply.err
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["status.json", "summary.json"]


def test_flags_may_stand_anywhere(call: Call) -> None:
    reply = call("run", "rate=3", "--cfg", "job", "seed=4", "--package=kv")
    assert reply.code == 0 and "block_size: 16" in reply.out and "rate" not in reply.out


def test_plug_in_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "own/system").mkdir(parents=True)
    preset = "# @package _global_\ndefaults:\n  - override /scheduler: fcfs\nsystem:\n  name: mine\n"
    (tmp_path / "own/system/mine.yaml").write_text(preset)
    assert "mine," in call("run", "--help", "--config-dir", "own").out
    reply = call("run", *SHORT, "system=mine", "output=json", "--config-dir", "own")
    assert reply.code == 0 and json.loads(reply.out)[0]["system"] == "mine"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_usage_lists_the_commands(call: Call, arguments: list[str]) -> None:
    reply = call(*arguments)
    assert reply.code == 0 and reply.err == ""
    assert all(f"  {name} " in reply.out for name in cli.COMMANDS)


def test_version(call: Call) -> None:
    assert call("--version") == (0, "kvsim 0.1.0.dev0\n", "")


@pytest.mark.parametrize(("word", "near"), [("rum", "'run'"), ("--verison", "'--version'")])
def test_misspelt_command(call: Call, word: str, near: str) -> None:
    reply = call(word)
    assert reply.code == 2 and f"did you mean {near}?" in reply.err and reply.err.count("\n") == 1


def test_help_names_every_group_option_and_key(call: Call) -> None:
    out = call("run", "--help").out
    for word in ("vllm_v1*", "fastertransformer", "buddy_pow2", "num_slots", "fast_forward", "llama-3-8b"):
        assert word in out
    assert "base" not in out


@pytest.mark.parametrize(
    ("line", "choices"),
    [
        ("kvsim ", " ".join(cli.COMMANDS)),
        ("kvsim ru", "run"),
        ("kvsim run system=orca", "system=orca_max system=orca_oracle system=orca_pow2"),
        ("kvsim run rate=1 kv.num", "kv.num_blocks= kv.num_slots="),
    ],
)
def test_completion(call: Call, monkeypatch: pytest.MonkeyPatch, line: str, choices: str) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    assert call("-sc", "query=bash").out.strip() == choices


def test_completion_is_installed_for_kvsim(call: Call) -> None:
    assert call("run", "-sc", "install=bash").out.strip().endswith("-F hydra_bash_completion kvsim")


def test_broken_law_exits_1_and_keeps_the_status(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def breach(self: object) -> None:
        raise InvariantError("INV-blocks", "block 3 is owned twice")

    monkeypatch.setattr("kvsim.engine.Engine.run", breach)
    reply = call("run", *SHORT, "hydra.run.dir=here")
    assert (reply.code, reply.err) == (1, "kvsim: INV-blocks: block 3 is owned twice\n")
    assert json.loads((tmp_path / "here/status.json").read_text())["state"] == "failed"
    assert not (tmp_path / "here/summary.json").exists()


def test_interrupt_exits_130(tmp_path: Path) -> None:
    endless = command("run", "rate=1", "num_requests=100000000", "hydra.run.dir=here")
    process = subprocess.Popen(endless, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not (tmp_path / "here/.hydra/overrides.yaml").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1] == "kvsim: interrupted\n"
    assert process.returncode == 130


def test_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    process = subprocess.Popen(command(), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait(30)


@pytest.mark.parametrize(("arguments", "limit_s"), [([], 0.1), (["run", "--help"], 0.6)])
def test_start_up_time(arguments: list[str], limit_s: float) -> None:
    """CPU seconds of the best of three, so that a busy machine does not matter."""
    best = float("inf")
    for _ in range(3):
        before = os.times()
        subprocess.run(command(*arguments), check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        best = min(best, used)
    assert best < limit_s


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from kvsim.cli import main; sys.argv = ['kvsim', 'run', '--help']; main(); "
        "print(sorted({'numpy', 'hydra', 'omegaconf', 'rich', 'pandas', 'simpy'} & set(sys.modules)), file=sys.stderr)"
    )
    reply = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert reply.stderr == "[]\n"
