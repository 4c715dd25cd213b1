"""`kvsim validate` with one cost model against another, no device."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from kvsim.validate.output import open_folder
from tests.calls import Call, caller

SMALL = (
    "executor=sim", "model=opt-13b", "hardware=h200", "cost=roofline", "validate.num_requests=15",
    "validate.loads={light:0.5,knee:null,overload:1.3}", "validate.systems=[vllm_v1,fastertransformer]",
)  # fmt: skip


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Calls kvsim inside this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return caller(monkeypatch, capfd)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open() as file:
        return list(csv.DictReader(file))


def test_equal_sides_pass(call: Call, tmp_path: Path) -> None:
    reply = call("validate", *SMALL, "validate.output=out", "validate.repeats=1")
    assert reply.code == 0, reply.err + reply.out
    lines = [line.split() for line in reply.out.splitlines() if line.startswith((" vllm", " faster"))]
    assert "MISS" not in reply.out and [line[-1] for line in lines] == ["0/0"] * 4
    assert reply.out.splitlines()[-1] == "0 missed, 0 noisy, 40 passed"
    found = rows(tmp_path / "out")
    assert {row["verdict"] for row in found} == {"pass", "reported"}
    assert {(row["system"], row["load"]) for row in found} == {
        (system, load) for system in ("vllm_v1", "fastertransformer") for load in ("light", "overload")
    }
    about = {tuple(row[name] for name in ("model", "hardware", "workload", "cost", "num_requests")) for row in found}
    assert about == {("opt-13b", "h200", "sharegpt", "roofline", "15")}
    rates = {row["load"]: float(row["rate"]) for row in found if row["system"] == "vllm_v1"}
    assert rates["overload"] == pytest.approx(rates["light"] * 1.3 / 0.5, rel=1e-5)
    assert (tmp_path / "out/step_times.png").stat().st_size > 1000
    assert (tmp_path / "out/vllm_v1_light/measured_0/summary.json").exists()
    report = call("report", "out", "--json")
    assert report.code == 0 and {row["system"] for row in json.loads(report.out)} == {"vllm_v1", "fastertransformer"}


def test_slower_steps_are_told_and_fail(call: Call, tmp_path: Path) -> None:
    words = ("validate.systems=[vllm_v1]", "validate.loads={overload:null}", "validate.output=out")
    reply = call("validate", *SMALL[:-1], *words, "validate.measured=['cost.efficiency.gemm_memory=0.7']")
    assert reply.code == 1, reply.err
    assert "MISS vllm_v1 light: replay step_mean" in reply.out
    parity = [row for row in rows(tmp_path / "out") if row["check"] == "parity"]
    assert len(parity) == 2 and {row["verdict"] for row in parity} == {"pass"}
    bias = {row["quantity"]: float(row["error"]) for row in rows(tmp_path / "out") if row["check"] == "replay"}
    assert bias["step_bias"] == pytest.approx(-bias["step_weighted"]) and bias["step_mean"] > 0.1


def test_json(call: Call) -> None:
    words = ("validate.systems=[vllm_v1]", "validate.loads={overload:null}", "validate.repeats=1", "output=json")
    reply = call("validate", *SMALL[:-1], *words)
    (case,) = json.loads(reply.out)
    assert reply.code == 0 and (case["system"], case["load"], case["miss"]) == ("vllm_v1", "light", 0)


def test_options_of_a_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "own/cost").mkdir(parents=True)
    (tmp_path / "own/cost/mine.yaml").write_text(
        "_target_: kvsim.cost.constant.ConstantCost\n_partial_: true\nseconds: 0.25\n"
    )
    words = ("cost=mine", "validate.systems=[vllm_v1]", "validate.loads={overload:null}", "validate.repeats=1")
    reply = call("validate", "--config-dir", "own", *SMALL[:3], SMALL[4], *words)
    assert reply.code == 0, reply.err
    assert {row["cost"] for row in rows(tmp_path / "outputs/validate")} == {"mine"}
    assert "mine" in call("validate", "--config-dir", "own", "--help").out
    shown = call("validate", "--config-dir", "own", "cost=mine", "--cfg", "job")
    assert shown.code == 0 and "seconds: 0.25" in shown.out and "GpuExecutor" in shown.out


def test_nothing_is_left_where_something_lacks(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "gpu_backend.executor", None)
    reply = call("validate", *SMALL[1:])
    assert reply.code == 2 and len(reply.err.splitlines()) == 1
    reply = call("validate", *SMALL[:-1], "validate.systems=[vllm_v1,vllm_v9]")
    assert reply.code == 2 and "system=vllm_v9: no such option" in reply.err
    assert list(tmp_path.iterdir()) == []


BAD = [
    (("validate.num_requests=0",), "validate.num_requests=0"),
    (("validate.repeats=0",), "validate.repeats=0"),
    (("validate.loads={light:-1}",), "validate.loads.light=-1"),
    (("validate.systems=[]",), "name one of each"),
    (("validate.systems=[vllm_v9]",), "system=vllm_v9: no such option; did you mean 'vllm_v1'?"),
    (("validate.tolerance.step=nan",), "validate.tolerance.step=nan"),
    (("validate.output=/dev/null/x",), "validate.output='/dev/null/x': Not a directory"),
    (("validate.sytems=[vllm_v1]",), "did you mean 'validate.systems'?"),
    (("validate.loads={heavy:2}",), "there are validate.loads.light, validate.loads.knee, validate.loads.overload"),
    (("validate.loads.heavy=2",), "there are validate.loads.light, validate.loads.knee, validate.loads.overload"),
    (("num_requests=5",), "num_requests=5: kvsim validate sets num_requests itself; give validate.num_requests=VALUE"),
    (("system=vllm_v1",), "give validate.systems=VALUE"),
    (("--config-dir", "nowhere"), "--config-dir nowhere: no such folder"),
    (("--run",), "is not for kvsim validate"),
    (("validate.systems=[5]",), "system=5: no such option"),
    (("validate.measured=[5]",), "validate.measured: '5' is not KEY=VALUE"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_wrong_usage(call: Call, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    reply = call("validate", "executor=sim", *words)
    assert reply.code == 2
    assert message in reply.err and len(reply.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name,price\nbread,1\n", "results.csv: has other columns than kvsim validate writes"),
        (b"", "results.csv: has other columns"),
        (b"name\nK\xe4se\n", "results.csv: is no table of kvsim validate"),
        (None, "results.csv: Is a directory"),
    ],
)
def test_a_results_file_of_somebody_else_stays(call: Call, tmp_path: Path, content: bytes | None, message: str) -> None:
    (tmp_path / "out").mkdir()
    path = tmp_path / "out/results.csv"
    path.mkdir() if content is None else path.write_bytes(content)
    reply = call("validate", *SMALL, "validate.output=out")
    assert reply.code == 2 and len(reply.err.splitlines()) == 1
    assert message in reply.err and "choose another validate.output" in reply.err
    assert list((tmp_path / "out").iterdir()) == [path]
    assert path.is_dir() if content is None else path.read_bytes() == content


def test_one_validation_at_a_time_in_a_folder(call: Call, tmp_path: Path) -> None:
    with open_folder(tmp_path / "out") as folder:
        reply = call("validate", *SMALL, "validate.output=out")
        assert reply.code == 2 and len(reply.err.splitlines()) == 1
        assert "out is in use by another kvsim" in reply.err and not list(folder.iterdir())
    assert not (tmp_path / "out").exists()


def test_help(call: Call) -> None:
    reply = call("validate", "--help")
    assert reply.code == 0 and reply.out.startswith("usage: kvsim validate")
    assert "gpu*" in reply.out and "sim*" not in reply.out and "--config-dir" in reply.out
