"""`kvsim validate` with one cost model against another, no device."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

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
    assert "MISS" not in reply.out and reply.out.count("pass") == 4
    found = rows(tmp_path / "out")
    assert {row["verdict"] for row in found} == {"pass", "reported"}
    assert {(row["system"], row["load"]) for row in found} == {
        (system, load) for system in ("vllm_v1", "fastertransformer") for load in ("light", "overload")
    }
    rates = {row["load"]: float(row["rate"]) for row in found if row["system"] == "vllm_v1"}
    assert rates["overload"] == pytest.approx(rates["light"] * 1.3 / 0.5, rel=1e-5)
    assert (tmp_path / "out/step_times.png").stat().st_size > 1000
    assert (tmp_path / "out/vllm_v1_light/measured_0/summary.json").exists()


def test_slower_steps_are_told_and_fail(call: Call, tmp_path: Path) -> None:
    words = ("validate.systems=[vllm_v1]", "validate.loads={overload:null}", "validate.output=out")
    reply = call("validate", *SMALL[:-1], *words, "validate.measured=['cost.efficiency.gemm_memory=0.7']")
    assert reply.code == 1, reply.err
    assert "MISS vllm_v1 light: replay step_mean" in reply.out
    parity = [row for row in rows(tmp_path / "out") if row["check"] == "parity"]
    assert len(parity) == 2 and {row["verdict"] for row in parity} == {"pass"}
    bias = {row["quantity"]: float(row["error"]) for row in rows(tmp_path / "out") if row["check"] == "replay"}
    assert bias["step_bias"] == pytest.approx(-bias["step_weighted"]) and bias["step_mean"] > 0.1


BAD = [
    (("validate.num_requests=0",), "validate.num_requests=0"),
    (("validate.repeats=0",), "validate.repeats=0"),
    (("validate.loads={light:-1}",), "validate.loads.light=-1"),
    (("validate.systems=[]",), "name one of each"),
    (("validate.systems=[vllm_v9]",), "system=vllm_v9: no such option; did you mean 'vllm_v1'?"),
    (("validate.tolerance.step=nan",), "validate.tolerance.step=nan"),
    (("validate.output=/dev/null/x",), "validate.output='/dev/null/x': Not a directory"),
    (("validate.sytems=[vllm_v1]",), "did you mean 'validate.systems'?"),
    (("--info",), "is not for kvsim validate"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_wrong_usage(call: Call, words: tuple[str, ...], message: str) -> None:
    reply = call("validate", "executor=sim", *words)
    assert reply.code == 2
    assert message in reply.err and len(reply.err.splitlines()) == 1


def test_help(call: Call) -> None:
    reply = call("validate", "--help")
    assert reply.code == 0 and reply.out.startswith("usage: kvsim validate")
