"""`kvsim trace`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.calls import Call, caller

PAIR = '{"instruction": "Say something.", "output": "Something."}'
LINE = '{"timestamp": %d, "input_length": 600, "output_length": 5, "hash_ids": [1, %d]}\n'
MOONCAKE = "".join(LINE % (second * 1000, second) for second in range(20))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Calls kvsim inside this process, in a folder of two traces."""
    monkeypatch.chdir(tmp_path)
    Path("texts").write_text(f"[{PAIR}]")
    Path("mooncake.jsonl").write_text(MOONCAKE)
    return caller(monkeypatch, capfd)


def names() -> set[str]:
    return {path.name for path in Path.cwd().iterdir()} - {"texts", "mooncake.jsonl"}


def test_import_and_replay(call: Call) -> None:
    reply = call("trace", "import", "mooncake.jsonl")
    assert reply == (0, "", "mooncake.trace.parquet: 20 rows from mooncake.jsonl (mooncake)\n")
    assert names() == {"mooncake.trace.parquet"}
    reply = call("run", "workload=trace", "workload.path=mooncake.trace.parquet", "output=json", "hydra.run.dir=out")
    assert reply.code == 0 and json.loads(reply.out)[0]["completed"] == 20


def test_import_tells_how_texts_were_counted(call: Call) -> None:
    reply = call("trace", "import", "texts", "-o", "out.csv")
    assert reply.code == 0
    assert reply.err.splitlines() == [
        "lengths are a token for every 4 characters; --tokenizer opt or a tokenizer.json counts exactly",
        "out.csv: 1 rows from texts (alpaca)",
    ]
    assert Path("out.csv").read_text() == "num_prompt_tokens,num_output_tokens\n4,3\n"
    reply = call("run", "workload=trace", "workload.path=out.csv")
    assert (reply.code, reply.err.count("\n")) == (2, 1)
    assert "has no arrival times; give workload.arrivals=poisson rate=2" in reply.err
    assert call("run", "workload=trace", "workload.path=out.csv", "rate=2").err == reply.err
    reply = call("trace", "stats", "texts")
    assert reply.code == 0 and reply.err.startswith("lengths are a token for every 4 characters; --tokenizer opt")


def test_a_failed_import_says_nothing_of_counting(call: Call) -> None:
    Path("bad").write_text('[{"conversations": "' + "x" * 999 + '"}]')
    for command in ("import", "stats"):
        reply = call("trace", command, "bad")
        assert reply.code == 2 and reply.err.startswith("kvsim: bad, record 1, column conversations: 'xxx")
        assert reply.err.count("\n") == 1 and len(reply.err) < 400


def test_a_run_warns_once_of_how_texts_were_counted(call: Call) -> None:
    words = ("workload=trace", "workload.path=texts", "workload.arrivals=poisson")
    reply = call("run", *words, "rate=2", "hydra.run.dir=out")
    assert reply.code == 0
    assert (reply.out + reply.err).count("lengths are a token for every 4 characters; kvsim trace import") == 1
    reply = call("sweep", *words, "rate=1,2", "hydra.sweep.dir=sweep")
    assert reply.code == 0
    assert (reply.out + reply.err).count("lengths are a token for every 4 characters; kvsim trace import") == 1


def test_a_run_without_a_path(call: Call) -> None:
    reply = call("run", "workload=trace")
    assert reply == (2, "", "kvsim: workload.path is not set; give workload.path=FILE\n")


def test_a_name_that_is_not_utf_8(call: Call) -> None:
    assert call("trace", "import", "mooncake.jsonl", "-o", "\udcff.parquet").code == 0
    assert call("trace", "import", "\udcff.parquet", "-o", "\udcff.csv").code == 0
    assert call("trace", "stats", "\udcff.csv", "--json").code == 0


def test_a_raw_trace_replays_as_its_import_does(call: Call) -> None:
    assert call("trace", "import", "mooncake.jsonl", "-o", "table.csv").code == 0
    for path, folder in (("mooncake.jsonl", "raw"), ("table.csv", "imported")):
        assert call("run", "workload=trace", f"workload.path={path}", f"hydra.run.dir={folder}").code == 0
    assert Path("raw", "requests.parquet").read_bytes() == Path("imported", "requests.parquet").read_bytes()


def test_bad_rows_are_told(call: Call) -> None:
    bad = '{"timestamp": -1}\n' * 4
    Path("bad").write_text(MOONCAKE + bad)
    reply = call("trace", "import", "bad", "-o", "out.csv")
    assert reply.code == 2 and reply.err.count("\n") == 1 and "bad, line 21, column timestamp: '-1'" in reply.err
    assert names() == {"bad"}
    reply = call("trace", "import", "bad", "-o", "out.csv", "--skip-bad-rows")
    assert reply.code == 0
    assert reply.err.startswith("bad rows skipped: 4 (line 21, column timestamp: '-1' is")
    assert "; line 23, " in reply.err and "line 24" not in reply.err and ", ...)\n" in reply.err


def test_what_was_left_out_is_told(call: Call) -> None:
    Path("burst").write_text("Timestamp,Model,Request tokens,Response tokens\n1,A,2,3\n2,A,2,0\n3,A,0,0\n")
    reply = call("trace", "import", "burst", "-o", "out.csv")
    assert reply.err.startswith("left out: 2 failed requests (no tokens)\n")


def test_stats(call: Call) -> None:
    reply = call("trace", "stats", "mooncake.jsonl")
    assert reply.code == 0 and reply.err == ""
    shown = dict(line.rsplit(maxsplit=1) for line in reply.out.splitlines() if line and not line.startswith(" "))
    assert shown["format"] == "mooncake" and shown["rows"] == "20" and shown["sessions"] == "-"
    assert shown["repeated blocks"] == "50.00%"  # 19 times block 1; its own second block repeats once
    reply = call("trace", "stats", "mooncake.jsonl", "--json")
    figures = json.loads(reply.out)
    assert figures["format"] == "mooncake" and figures["mean_rate"] == pytest.approx(20 / 19)
    assert figures["cv_of_gaps"] == 0 and figures["sessions"] is None
    assert names() == set()


@pytest.mark.parametrize("trace", ["mooncake.jsonl", "texts"])
def test_plot(call: Call, trace: str) -> None:
    assert call("trace", "stats", trace, "--plot", "figure.png").code == 0
    assert Path("figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("table", "flags", "overrides"),
    [
        ("out.csv", "--rate 4 --num-requests 200 --seed 7", "rate=4 num_requests=200 seed=7"),
        (
            "out.parquet",
            "--rate 3 --duration 40 --arrivals gamma --cv 3 --lengths sharegpt_llama",
            "workload=sharegpt_llama rate=3 duration=40 workload.arrivals=gamma workload.cv=3",
        ),
        (
            "out.parquet",
            "--arrivals all_at_once --num-requests 50 --lengths alpaca",
            "workload=alpaca workload.arrivals=all_at_once num_requests=50",
        ),
        ("out.csv", "--arrivals constant --rate 7 --duration 9", "workload.arrivals=constant rate=7 duration=9"),
    ],
    ids=["poisson", "gamma", "all at once", "constant"],
)
def test_synthesized_requests_are_those_of_the_workload(call: Call, table: str, flags: str, overrides: str) -> None:
    assert call("trace", "synth", "-o", table, *flags.split()).code == 0
    assert call("run", *overrides.split(), "hydra.run.dir=generated").code == 0
    assert call("run", "workload=trace", f"workload.path={table}", "hydra.run.dir=replayed").code == 0
    for name in ("requests.parquet", "steps.parquet", "memory.parquet"):
        assert Path("generated", name).read_bytes() == Path("replayed", name).read_bytes()


BAD_INPUT = [
    (["imprt", "texts"], "unknown trace command 'imprt'; did you mean 'import'?"),
    (["import"], "the following arguments are required: FILE"),
    (["import", "texts", "--tokeniser", "opt"], "unknown option '--tokeniser'; did you mean '--tokenizer'?"),
    (["import", "texts", "--format", "alpacka"], "must be one of auto, sharegpt"),
    (["import", "texts", "--format", "alpacka"], "did you mean 'alpaca'?"),
    (["import", "texts", "--max-bytes", "0"], "--max-bytes 0: must be at least 1"),
    (["import", "texts", "--max-bytes", "x"], "invalid int value: 'x'"),
    (["import", "texts", "--tokenizer", "none.json"], "none.json: no such file"),
    (["import", "mooncake.jsonl", "--tokenizer", "chars4"], "holds token counts; drop the option"),
    (["import", "none"], "none: no such file"),
    (["import", "-"], "-: standard input cannot be read; give the path of a trace"),
    (["import", "."], ".: is a folder; give the path of a regular file"),
    (["import", "/dev/null"], "/dev/null: is a pipe or device, and is not read"),
    (["import", "\udcff"], ": no such file; give the path of a trace"),
    (["import", "texts", "-o", "texts"], "must end in .parquet or .csv"),
    (["import", "texts", "-o", "no/where.csv"], "cannot be written"),
    (["import", "texts", "more"], "unrecognized arguments: more"),
    (["stats", "texts", "--plot", "x.gif"], "--plot x.gif: must end in .png, .svg, .pdf"),
    (["stats", "texts", "--plot", "no/x.png"], "--plot no/x.png: there is no folder no"),
    (["synth", "-o", "x.csv", "--rate", "1"], "one of the arguments --num-requests --duration is required"),
    (["synth", "-o", "x.csv", "--rate", "1", "--num-requests", "1", "--duration", "1"], "not allowed with argument"),
    (["synth", "-o", "x.csv", "--num-requests", "1"], "--rate is not given: poisson arrivals need requests a second"),
    (["synth", "-o", "x.csv", "--num-requests", "0", "--rate", "1"], "num_requests=0: must be a whole number from 1"),
    (["synth", "-o", "x.csv", "--num-requests", "1", "--rate", "nan"], "rate=nan: must be a number from"),
    (["synth", "-o", "x.csv", "--num-requests", "1", "--rate", "1", "--seed", "-1"], "seed=-1"),
    (["synth", "-o", "x.csv", "--duration", "1e-9", "--rate", "1"], "x.csv: would have no rows"),
    (["synth", "-o", "x.csv", "--num-requests", "1", "--arrivals", "posson"], "did you mean 'poisson'?"),
    (["synth", "--rate", "1", "--num-requests", "1"], "required: -o"),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD_INPUT, ids=[" ".join(words) for words, _ in BAD_INPUT])
def test_bad_input_is_one_line_and_leaves_nothing(call: Call, arguments: list[str], expected: str) -> None:
    reply = call("trace", *arguments)
    assert reply.code == 2 and reply.out == ""
    last = reply.err.splitlines()[-1]
    assert last.startswith("kvsim: ") and expected in last and "Traceback" not in reply.err
    assert names() == set()


@pytest.mark.parametrize("words", [[], ["--help"], ["import", "--help"], ["stats", "-h"], ["synth", "--help"]])
def test_help(call: Call, words: list[str]) -> None:
    reply = call("trace", *words)
    assert (reply.code, reply.err) == (0, "") and reply.out.startswith("usage: kvsim trace")


def test_the_input_is_never_overwritten(call: Call) -> None:
    Path("in.csv").write_text("num_prompt_tokens,num_output_tokens\n1,2\n")
    reply = call("trace", "import", "in.csv", "-o", "in.csv")
    assert reply.code == 2 and "is the file that is read" in reply.err
    Path("in.png").write_text("num_prompt_tokens,num_output_tokens\n1,2\n")
    reply = call("trace", "stats", "in.png", "--plot", "in.png")
    assert reply.code == 2 and Path("in.png").read_text().startswith("num_prompt")
