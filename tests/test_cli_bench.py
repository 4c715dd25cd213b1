"""`kvsim bench`: an offline run on any executor, and a clear line where there is no GPU backend."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kvsim.cli.bench import KERNELS, as_lines, engine_report
from tests.calls import Call, caller


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Calls kvsim inside this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return caller(monkeypatch, capfd)


def test_engine_reports_tokens_a_second(call: Call) -> None:
    reply = call("bench", "engine", "executor=sim", "cost=constant", "cost.seconds=0.5", "workload=synthetic",
                 "workload.lengths.input_mean=100", "workload.lengths.output_mean=10", "num_requests=8")  # fmt: skip
    assert reply.code == 0, reply.err
    found = {line[:22].strip(): line[22:].strip() for line in reply.out.splitlines()}
    assert list(found) == ["requests", "output tokens/s", "total tokens/s", "steps"]
    assert found["requests"] == "8"


def test_engine_takes_options_of_a_folder_and_prints_json(call: Call, tmp_path: Path) -> None:
    (tmp_path / "own/cost").mkdir(parents=True)
    (tmp_path / "own/cost/mine.yaml").write_text(
        "_target_: kvsim.cost.constant.ConstantCost\n_partial_: true\nseconds: 0.25\n"
    )
    words = ("--config-dir", "own", "executor=sim", "cost=mine", "workload=alpaca", "num_requests=8")
    reply = call("bench", "engine", *words, "output=json")
    assert reply.code == 0, reply.err
    found = json.loads(reply.out)
    assert list(found) == ["requests", "output_tokens_per_s", "total_tokens_per_s", "steps"]
    assert found["requests"] == 8 and found["total_tokens_per_s"] > found["output_tokens_per_s"] > 0
    shown = call("bench", "engine", *words, "--cfg", "job", "--package", "cost")
    assert shown.code == 0 and "seconds: 0.25" in shown.out


def test_phases_are_means() -> None:
    summary = {
        "completed": 2,
        "output_throughput": 100.0,
        "total_output_tokens": 10,
        "total_input_tokens": 30,
        "steps": 2,
    }
    report = engine_report(summary, [(0, 2000, 5000, 100), (4000, 4000, 7000, 300)])
    found = {line[:22].strip(): line[22:].strip() for line in as_lines(report).splitlines()}
    assert found == {
        "requests": "2", "output tokens/s": "100", "total tokens/s": "400", "steps": "2", "schedule, us a step": "2.0",
        "prepare, us a step": "3.0", "forward, us a step": "6.0", "finish, us a step": "0.2",
    }  # fmt: skip


def test_kernels_are_passed_on(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(KERNELS)
    module.main = lambda arguments: print(*arguments) or 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, KERNELS, module)
    reply = call("bench", "kernels", "--only", "decode")
    assert (reply.code, reply.out) == (7, "--only decode\n")


def test_no_gpu_backend_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, KERNELS, None)
    reply = call("bench", "kernels")
    assert reply.code == 2
    assert "needs the GPU backend" in reply.err and len(reply.err.splitlines()) == 1


def test_no_request_completed_is_one_line(call: Call) -> None:
    reply = call("bench", "engine", "executor=sim", "cost=constant", "model=opt-125m", "workload=synthetic",
                 "workload.lengths.input_mean=9999", "num_requests=5")  # fmt: skip
    assert reply.code == 1
    assert reply.err.splitlines()[-1].startswith("kvsim: no request was completed, 5 were rejected; kvsim run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("kernel",), "unknown benchmark 'kernel'; did you mean 'kernels'?"),
        (("engine", "--run"), "is not for kvsim bench engine"),
        (("engine", "executor=sim", "rat=3"), "did you mean 'rate'?"),
        (("engine", "rate=3"), "rate=3: kvsim bench engine sets rate itself; give num_requests=VALUE"),
        (("engine", "workload.arrivals=poisson"), "sets workload.arrivals itself"),
        (("engine", "--foo"), "unknown option '--foo'; see kvsim bench engine --help"),
        (("engine", "--confg-dir=x"), "did you mean '--config-dir'?"),
    ],
)
def test_wrong_usage(call: Call, words: tuple[str, ...], message: str) -> None:
    reply = call("bench", *words)
    assert reply.code == 2 and message in reply.err


def test_help(call: Call) -> None:
    assert call("bench").out.startswith("usage: kvsim bench")
    reply = call("bench", "engine", "--help")
    assert reply.code == 0 and reply.out.startswith("usage: kvsim bench engine") and "gpu*" in reply.out
