"""Traces: formats, order, re-timing, and every way a file can be wrong."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvsim.errors import ConfigError, TraceError
from kvsim.protocols import Arrival, Workload
from kvsim.workload.trace import TraceWorkload

Drain = Callable[[Workload], list[Arrival]]

HEADER = "arrival_time_s,num_prompt_tokens,num_output_tokens\n"
AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROWS = HEADER + "2.5,10,3\n0.5,20,0\n2.5,0,5\n1,40,6\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Content -> path of a file that holds it."""

    def write(content: str | bytes, name: str = "trace.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def flat(arrivals: list[Arrival]) -> list[tuple[int, int, int, int]]:
    """(id, ns, prompt, output) of each."""
    return [
        (a.request.request_id, a.request.arrival_ns, a.request.num_prompt_tokens, a.num_output_tokens) for a in arrivals
    ]


IN_ORDER = [(1, 500_000_000, 20, 0), (3, 10**9, 40, 6), (0, 2_500_000_000, 10, 3), (2, 2_500_000_000, 0, 5)]


def test_rows_come_by_time_then_row_and_keep_their_number(write: Callable[..., str], drain: Drain) -> None:
    arrivals = drain(TraceWorkload(write(ROWS)))
    assert flat(arrivals) == IN_ORDER
    assert type(arrivals[0].request.request_id) is type(arrivals[0].num_output_tokens) is int


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(ROWS.encode(), mtime=0),
        "\ufeff" + ROWS,
        ROWS.replace("\n", "\r\n"),
        ROWS.replace("\n", "\n\n"),
        ROWS.replace("10,3", '"10",3.0'),
        ROWS.replace("10,3", " 10 ,3 "),
        ROWS.rstrip("\n"),
        "note," + HEADER + ",2.5,10,3\n1 2 3,0.5,20,0\n7,2.5,0,5\n,1,40,6\n",
    ],
    ids=["gzip", "bom", "crlf", "blank lines", "quotes", "spaces", "no end of line", "other column"],
)
def test_variants_of_a_csv(write: Callable[..., str], drain: Drain, content: str | bytes) -> None:
    assert flat(drain(TraceWorkload(write(content)))) == IN_ORDER


@pytest.mark.parametrize("kind", ["int64", "float64", "string"])
def test_parquet(tmp_path: Path, drain: Drain, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    lengths = {"num_output_tokens": [3, 0, 5, 6], "num_prompt_tokens": [10, 20, 0, 40]}
    columns = {name: pa.array(values).cast(kind) for name, values in lengths.items()}
    pq.write_table(
        pa.table({"session_id": ["a"] * 4, "arrival_time_s": [2.5, 0.5, 2.5, 1.0], **columns}), tmp_path / "t"
    )
    assert flat(drain(TraceWorkload(str(tmp_path / "t")))) == IN_ORDER


@pytest.mark.parametrize("zone", ["", "Z", "+00:00", "+02:00"])
def test_azure_timestamps_count_from_the_earliest(write: Callable[..., str], drain: Drain, zone: str) -> None:
    path = write(AZURE_HEADER + f"2023-11-16 18:15:46.6805900{zone},374,44\n2023-11-16 18:15:46.0000001{zone},1,2\n")
    assert flat(drain(TraceWorkload(path))) == [(1, 0, 1, 2), (0, 680_589_900, 374, 44)]


def test_the_azure_trace(shared_trace: Callable[[str], Path], drain: Drain) -> None:
    path = shared_trace("AzureLLMInferenceTrace_conv_2023.csv")
    started = time.perf_counter()
    arrivals = flat(drain(TraceWorkload(str(path))))
    assert time.perf_counter() - started < 2.0
    ids, times, prompts, outputs = np.array(arrivals).T
    assert len(arrivals) == 19_366 and (ids == np.arange(19_366)).all()
    assert arrivals[:2] == [(0, 0, 374, 44), (1, 4_314_579_000, 396, 109)]
    assert len(times) / (times[-1] / 1e9) == pytest.approx(5.5, rel=0.01)
    assert np.percentile(prompts, [10, 50, 90, 99, 100]).round().tolist() == [207, 1020, 2734, 4142, 14050]
    assert np.percentile(outputs, [10, 50, 90, 99, 100]).round().tolist() == [54, 129, 424, 601, 1000]


@pytest.mark.parametrize(("limit", "count"), [({}, 4), ({"duration": 2.5}, 2), ({"num_requests": 3}, 3)])
def test_limits(write: Callable[..., str], drain: Drain, limit: dict[str, Any], count: int) -> None:
    assert flat(drain(TraceWorkload(write(ROWS), **limit))) == IN_ORDER[:count]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(
    times=st.lists(st.floats(0, 100), min_size=1, max_size=30),
    process=st.sampled_from(("trace", "poisson", "constant", "all_at_once")),
)
def test_order_and_pairing_hold_for_any_trace(write: Callable[..., str], times: list[float], process: str) -> None:
    path = write(HEADER + "".join(f"{t!r},{row + 1},{row + 100}\n" for row, t in enumerate(times)))
    rate = 3.0 if process in ("poisson", "constant") else None
    arrivals = flat(list(iter(TraceWorkload(path, arrivals=process, rate=rate).next_arrival, None)))
    assert [(t, i) for i, t, _, _ in arrivals] == sorted((t, i) for i, t, _, _ in arrivals)
    assert sorted((i, p, o) for i, _, p, o in arrivals) == [(i, i + 1, i + 100) for i in range(len(times))]
    if process == "trace":
        assert {i: t for i, t, _, _ in arrivals} == {i: round(t * 1e9) for i, t in enumerate(times)}


def test_texts_replay_with_a_token_for_every_4_characters(
    write: Callable[..., str], drain: Drain, caplog: pytest.LogCaptureFixture
) -> None:
    assert flat(drain(TraceWorkload(write(ROWS)))) == IN_ORDER
    path = write('[{"instruction": "Say it.", "output": "abcdefghi"}]')
    for rate in (None, 2.0):
        with pytest.raises(TraceError, match="no arrival times"):
            TraceWorkload(path, rate=rate)
    assert caplog.messages == []
    assert flat(drain(TraceWorkload(path, arrivals="all_at_once"))) == [(0, 0, 2, 3)]
    assert caplog.messages == [
        "lengths are a token for every 4 characters; kvsim trace import --tokenizer counts exactly"
    ]


def test_a_large_table_is_read_in_seconds(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = 100_000
    lengths = {name: pa.array(np.arange(count) % 4000) for name in ("num_prompt_tokens", "num_output_tokens")}
    ids = {"hash_ids": ["1 23 456"] * count, "hash_block_size": [16] * count}
    pq.write_table(pa.table({"arrival_time_s": np.arange(count) / 8, **lengths, **ids}), tmp_path / "t.parquet")
    started = time.process_time()
    TraceWorkload(str(tmp_path / "t.parquet"))
    assert time.process_time() - started < 4.0


def test_an_arrival_process_replaces_the_instants_and_keeps_the_order(write: Callable[..., str], drain: Drain) -> None:
    arrivals = flat(drain(TraceWorkload(write(ROWS), arrivals="constant", rate=1.0)))
    assert [(i, t) for i, t, _, _ in arrivals] == [(1, 10**9), (3, 2 * 10**9), (0, 3 * 10**9), (2, 4 * 10**9)]
    at_once = flat(drain(TraceWorkload(write(ROWS), arrivals="all_at_once")))
    assert [(i, t) for i, t, _, _ in at_once] == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_rescaled_instants_have_the_rate(write: Callable[..., str], drain: Drain) -> None:
    arrivals = flat(drain(TraceWorkload(write(ROWS), rescale=True, rate=8.0)))
    times = [t for _, t, _, _ in arrivals]
    assert len(times) / (times[-1] - times[0]) * 1e9 == pytest.approx(8.0)
    assert times == [125_000_000, 250_000_000, 625_000_000, 625_000_000]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rate": 2.0},
            r"rate=2.0: a trace has its own arrival times.*workload.rescale=true.*workload.arrivals=poisson",
        ),
        ({"rescale": True}, "needs a rate"),
        ({"rescale": "yes"}, "must be true or false"),
        ({"rescale": True, "rate": float("nan")}, "^rate=nan"),
        ({"rescale": True, "rate": "2"}, "^rate='2'"),
        ({"rescale": True, "rate": 1e-6, "num_requests": 2}, None),
        ({"rescale": True, "rate": 2.0, "arrivals": "poisson"}, "drop it or workload.arrivals=poisson"),
        ({"arrivals": "poisson"}, "rate is not set"),
        ({"arrivals": "poison"}, "must be one of trace, poisson"),
        ({"duration": 0}, "^duration=0"),
        ({"num_requests": 0}, "^num_requests=0"),
        ({"max_bytes": 0}, "^workload.max_bytes=0"),
    ],
)
def test_options_at_odds(write: Callable[..., str], options: dict[str, Any], message: str | None) -> None:
    path = write(ROWS)
    if message is None:
        TraceWorkload(path, **options)
        return
    with pytest.raises(ConfigError, match=message):
        TraceWorkload(path, **options)


@pytest.mark.parametrize(
    ("path", "problem"),
    [(None, "is not set"), ("", "is not set"), (3, "=3: must be text"), ([9] * 99, r"=\[9, 9.*\.\.\.\]: must be text")],
)
def test_no_path(path: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^workload.path ?{problem}; give workload.path=FILE$") as caught:
        TraceWorkload(path)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("options", "end"),
    [({}, ""), ({"rate": 5.0}, ""), ({"rescale": True}, " and drop"), ({"rescale": True, "rate": 2.0}, " and drop")],
)
def test_a_file_without_times_has_one_remedy(
    write: Callable[..., str], drain: Drain, options: dict[str, Any], end: str
) -> None:
    path = write("num_prompt_tokens,num_output_tokens\n1,2\n")
    end = f"{end} workload.rescale" if end else ""
    with pytest.raises(TraceError, match=f"has no arrival times; give workload.arrivals=poisson rate=2{end}$"):
        TraceWorkload(path, **options)
    assert len(drain(TraceWorkload(path, arrivals="poisson", rate=2.0))) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        ("\n\n", "is empty"),
        (HEADER, "has no request that can be used"),
        (AZURE_HEADER, "has no request that can be used"),
        (b"\x00\x01\x02" * 100, "is binary"),
        (b"\xff\xfe\x00a" * 100, "is UTF-16"),
        (b"PAR1 and no more", "not a readable parquet file"),
        (gzip.compress(ROWS.encode() * 50, mtime=0)[:60], "cannot be read"),
        (b"\x1f\x8bnot gzip at all", "cannot be read"),
        (
            "arrival_time_s,num_prompt_tokens\n1,2\n",
            "no known format; name .* num_prompt_tokens, num_output_tokens .* the file has arrival_time_s, num_p",
        ),
        ("TIMESTAMP,ContextTokens\nx,2\n", r"the file has TIMESTAMP, ContextTokens \(azure has GeneratedTokens too\)$"),
        ("1,2,3\n1,2,3\n", "no known format; name the columns .* num_prompt_tokens, .* has 1, 2, 3$"),
        ("num_prompt_tokens," + HEADER + "1,1,1,1\n", "column num_prompt_tokens is there more than once"),
        (
            HEADER + "1,2,3\n\n1,two,3\n",
            "line 4, column num_prompt_tokens: 'two' is not a whole number from 0 to 10000000",
        ),
        (HEADER + "1,2,3\n1,2,\n", "line 3, column num_output_tokens: ''"),
        (HEADER + "1,2,nan\n", "line 2, column num_output_tokens: 'nan'"),
        (HEADER + "1,2,3\n1,2.5,3\n", "line 3, column num_prompt_tokens: '2.5' is not a whole number"),
        (HEADER + "1,2,3\n1,-2,3\n", "line 3, column num_prompt_tokens: '-2'"),
        (HEADER + "1,2,2000000000\n", "line 2, column num_output_tokens: '2000000000'"),
        (HEADER + "1,2,inf\n", "line 2, column num_output_tokens: 'inf'"),
        (HEADER + "1,2,10000001\n", "column num_output_tokens: '10000001' is not a whole number from 0 to 10000000"),
        (HEADER + "-1,2,3\n", "line 2, column arrival_time_s: '-1' is not a number from 0 to 1000000000"),
        (HEADER + "1,2,3\nNaN,2,3\n", "line 3, column arrival_time_s: 'NaN'"),
        (HEADER + "inf,2,3\n", "line 2, column arrival_time_s: 'inf'"),
        (HEADER + "1700158546,2,3\n", "line 2, column arrival_time_s: '1700158546'"),
        (HEADER + "true,2,3\n", "line 2, column arrival_time_s: 'true'"),
        (HEADER + "1,2,3\n1,2\n", "line 3: 2 fields where the header has 3"),
        (HEADER + "1,2,3\n\n1,2,3,4\n", "line 4: 4 fields where the header has 3"),
        (AZURE_HEADER + "XYZ,2,3\n", "line 2, column TIMESTAMP: 'XYZ' is not a timestamp such as"),
        (AZURE_HEADER + "2023-11-16 18:15:46,2,3\n2023-13-16 18:15:46,2,3\n", "line 3, column TIMESTAMP: '2023-13-16"),
        (
            AZURE_HEADER + "1680-01-01 00:00:00,2,3\n2260-01-01 00:00:00,2,3\n",
            "line 3, column TIMESTAMP.*after the earliest",
        ),
        (AZURE_HEADER + "2023-11-16 18:15:46,2,3.5\n", "line 2, column GeneratedTokens: '3.5'"),
        (HEADER.encode() + b"1,2,3\n" * 20_000 + b"1,2,\xff\n", "line 20002: not UTF-8 text"),
    ],
)
def test_bad_file(write: Callable[..., str], content: str | bytes, message: str) -> None:
    path = write(content)
    with pytest.raises(TraceError, match=message) as caught:
        TraceWorkload(path)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file; give the path of a trace"):
        TraceWorkload(str(tmp_path / "none.csv"))
    with pytest.raises(TraceError, match="is a folder; give the path of a regular file"):
        TraceWorkload(str(tmp_path))


def test_rows_of_one_instant_cannot_be_rescaled(write: Callable[..., str]) -> None:
    with pytest.raises(TraceError, match="one instant"):
        TraceWorkload(write(HEADER + "1,2,3\n1,2,3\n"), rescale=True, rate=1.0)


@pytest.mark.parametrize("packed", [False, True])
def test_expanded_input_is_capped(write: Callable[..., str], packed: bool) -> None:
    content = (HEADER + "1,2,3\n" * 50_000).encode()
    path = write(gzip.compress(content, mtime=0) if packed else content)
    TraceWorkload(path, max_bytes=len(content))
    with pytest.raises(TraceError, match="more than 1000 bytes when expanded.*workload.max_bytes"):
        TraceWorkload(path, max_bytes=1000)


def test_expanded_parquet_is_capped(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    zeros = np.zeros(500_000, dtype=np.int64)
    names = ("arrival_time_s", "num_prompt_tokens", "num_output_tokens")
    pq.write_table(pa.table(dict.fromkeys(names, zeros)), tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 100_000
    with pytest.raises(TraceError, match="more than 1000000 bytes when expanded"):
        TraceWorkload(str(tmp_path / "t.parquet"), max_bytes=1_000_000)


@pytest.mark.parametrize(("value", "shown"), [(None, "'None'"), ([1], "a list"), (float("nan"), "'nan'"), (-1, "'-1'")])
def test_bad_parquet_value(tmp_path: Path, value: object, shown: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = pa.array([value]) if isinstance(value, list) else pa.array([5, value], from_pandas=False)
    rows = len(column)
    table = {"arrival_time_s": [0.0] * rows, "num_prompt_tokens": [1] * rows, "num_output_tokens": column}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=f"row {rows - 1}, column num_output_tokens: {shown}"):
        TraceWorkload(str(tmp_path / "t.parquet"))
