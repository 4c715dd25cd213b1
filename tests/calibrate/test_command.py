"""`kvsim calibrate`, from its words to a profile that a run takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.calls import Call, caller

SMALL = (
    "executor=sim", "model=opt-13b", "hardware=h200", "calibrate.repeats=1", "calibrate.max_tokens=600",
    "calibrate.max_rows=20", "calibrate.systems=[vllm_v1]", "calibrate.run_seconds=2",
)  # fmt: skip


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Calls kvsim inside this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return caller(monkeypatch, capfd)


def test_a_profile_is_measured_used_and_fitted_again(call: Call, tmp_path: Path) -> None:
    (tmp_path / "conf/cost").mkdir(parents=True)
    reply = call("calibrate", *SMALL, "calibrate.output=conf/cost/mine.yaml")
    assert reply.code == 0, reply.err
    kinds = [line.split("steps")[0].split()[:-1] for line in reply.out.splitlines()]
    assert kinds == [["decode"], ["prefill"], ["mixed"], ["padded"], ["run", "vllm_v1"], ["all"]]
    text = (tmp_path / "conf/cost/mine.yaml").read_text()
    assert "command: kvsim calibrate executor=sim" in text and "decode: 1 to 19 rows" in text
    ran = call(
        "run", "--config-dir", "conf", "cost=mine", "model=opt-13b", "hardware=h200", "rate=5", "num_requests=20",
        "output=json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    wrong = call("run", "--config-dir", "conf", "cost=mine", "model=opt-125m", "rate=5")
    assert wrong.code == 2 and "cost.model_name=opt-13b" in wrong.err
    other = call("run", "--config-dir", "conf", "cost=mine", "model=opt-13b", "model.num_layers=2", "rate=5")
    assert other.code == 2 and "these step times are of a opt-13b of another shape" in other.err
    again = call("calibrate", "calibrate.from_points=conf/cost/mine.points.csv", "calibrate.output=again.yaml")
    assert again.code == 0, again.err
    assert again.out == reply.out
    words = ("calibrate.from_points=conf/cost/mine.points.csv", "calibrate.output=again.yaml", "output=json")
    listed = json.loads(call("calibrate", *words).out)
    assert [error["kind"] for error in listed] == ["decode", "prefill", "mixed", "padded", "run vllm_v1", "all"]
    assert set(listed[0]) == {"kind", "points", "mean", "p95", "bias"}
    assert (tmp_path / "again.yaml").read_text() == text


BAD = [
    ((), "calibrate.output is not set"),
    (("calibrate.output=x.csv",), "must end in .yaml"),
    (("calibrate.output=nowhere/x.yaml",), "there is no folder nowhere"),
    (("--run",), "option --run: is not for kvsim calibrate"),
    (("--config-dir", "nowhere"), "--config-dir nowhere: no such folder"),
    (("calibrate.output=x.yaml", "rate=3"), "rate=3: kvsim calibrate sets rate itself; give calibrate.rate=VALUE"),
    (("num_requests=3",), "give calibrate.run_seconds=VALUE"),
    (("calibrate.outptu=x.yaml",), "did you mean 'calibrate.output'?"),
    (("calibrate.output=x.yaml", "calibrate.from_points=none.csv"), "name a file of points"),
    (("calibrate.output=x.yaml", "calibrate.repeats=0"), "calibrate.repeats=0"),
    (("calibrate.output=x.yaml", "calibrate.max_seconds=nan"), "calibrate.max_seconds=nan"),
    (("calibrate.output=x.yaml", "calibrate.max_rows=0"), "calibrate.max_rows=0"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_wrong_usage(call: Call, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    reply = call("calibrate", "executor=sim", *words)
    assert reply.code == 2
    assert message in reply.err and len(reply.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_help(call: Call) -> None:
    reply = call("calibrate", "--help")
    assert reply.code == 0 and reply.out.startswith("usage: kvsim calibrate")
    assert "gpu*" in reply.out and "sim*" not in reply.out and "--config-dir" in reply.out
