"""`kvsim calibrate`, from its words to a profile that a run takes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from kvsim.cost.shape import StepShape
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
    (("calibrate.output=/dev/x.yaml/y.yaml",), "calibrate.output=/dev/x.yaml/y.yaml: there is no folder"),
    (("calibrate.output=x.yaml", "calibrate.points=/tmp"), "calibrate.points=/tmp: is a folder or device, no file"),
    (("calibrate.output=x.yaml", "calibrate.points=/dev/null"), "calibrate.points=/dev/null: is a folder or device"),
    (("calibrate.output=x.yaml", "calibrate.points=../x.csv/y"), "there is no folder ../x.csv"),
    (
        ("calibrate.output=x.yaml", "calibrate.points=./x.yaml"),
        "calibrate.points=x.yaml: the profile",
    ),
    (("calibrate.output=x.yaml", "calibrate.from_points=x.yaml"), "calibrate.from_points=x.yaml: the profile"),
    (("calibrate.output=x.yaml", "calibrate.systems=[vllm_v1,nope]"), "system=nope: no such option"),
    (("calibrate.output=x.yaml", "calibrate.systems=[5]"), "system=5: no such option"),
    (("--foo",), "unknown option '--foo'; see kvsim calibrate --help"),
    (("--pakage", "cost"), "did you mean '--package'?"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_wrong_usage(call: Call, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    reply = call("calibrate", "executor=sim", *words)
    assert reply.code == 2
    assert message in reply.err and len(reply.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


HEAD = {"model": "opt-13b", "num_parameters": 5, "buckets": {"decode": [4, 8]}, "provenance": {"date": "today"}}
ROW = {"kind": "decode"} | dict.fromkeys(StepShape._fields, 1) | {"device_ns": 5, "host_ns": 0, "times": 1}


@pytest.mark.parametrize(
    ("head", "row", "message"),
    [
        ({}, {"device_ns": 10**22}, "line 3: no points of kvsim calibrate (device_ns=1000"),
        ({}, {"device_ns": 0}, "line 3: no points of kvsim calibrate (device_ns=0: must be a whole number from 1"),
        ({}, {"tokens": -1}, "tokens=-1"),
        ({}, {"rows": 0}, "rows=0"),
        ({}, {"times": 0}, "times=0"),
        ({}, {"pairs": "many"}, "line 3: no points of kvsim calibrate; name another file"),
        ({"buckets": {"decode": ["a"]}}, {}, "line 1: no points of kvsim calibrate (buckets.decode='a'"),
        ({"buckets": {"decode": [8, 4]}}, {}, "buckets.decode=[8, 4]: must ascend"),
        ({"buckets": {"prefill": [8]}}, {}, "line 1"),
        ({"model": "a\nrates: 1"}, {}, "model='a\\nrates: 1': must be text on one line"),
        ({"provenance": {"date": "\n- x"}}, {}, "must be text on one line"),
        ({"num_parameters": "5"}, {}, "num_parameters='5'"),
        ({}, {}, "'p.csv': 1 points in it, a fit needs 10; name another file, or measure again"),
    ],
)
def test_wrong_points(
    call: Call, tmp_path: Path, head: dict[str, object], row: dict[str, object], message: str
) -> None:
    with (tmp_path / "p.csv").open("w") as file:
        file.write(f"# {json.dumps(HEAD | head)}\n")
        writer = csv.DictWriter(file, ROW)
        writer.writeheader()
        writer.writerow(ROW | row)
    reply = call("calibrate", "calibrate.from_points=p.csv", "calibrate.output=x.yaml")
    assert reply.code == 2 and len(reply.err.splitlines()) == 1
    assert "calibrate.from_points='p.csv'" in reply.err and message in reply.err
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


def test_help(call: Call) -> None:
    reply = call("calibrate", "--help")
    assert reply.code == 0 and reply.out.startswith("usage: kvsim calibrate")
    assert "gpu*" in reply.out and "sim*" not in reply.out and "--config-dir" in reply.out
