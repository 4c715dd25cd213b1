"""Every format from a file of its public layout, and the real ones; what is left out, skipped and refused."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kvsim.errors import ConfigError, TraceError
from kvsim.workload.formats.bailian import Bailian
from kvsim.workload.formats.row import Row
from kvsim.workload.formats.source import FORMATS, TraceSource
from tests.workload.formats.files import MAKERS

Put = Callable[..., Path]
ONE = {"timestamp": 1, "input_length": 10, "output_length": 5, "hash_ids": [1]}


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_there_is_a_maker_for_each_format() -> None:
    assert list(MAKERS) == list(FORMATS)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", FORMATS)
def test_format_is_known_by_content(put: Put, name: str, packed: bool) -> None:
    made = MAKERS[name]()
    source = TraceSource(put(gzip.compress(made.content, 1) if packed else made.content))
    rows = list(source)
    assert source.kind.name == name
    assert len(rows) >= 1000 and rows == made.rows
    assert list(source) == made.rows, "a source is read anew every time"
    assert source.num_skipped == 0


@pytest.mark.parametrize("name", ["sharegpt", "alpaca"])
def test_json_lines_do_as_well_as_an_array(put: Put, name: str) -> None:
    made = MAKERS[name]()
    source = TraceSource(put(lines(*json.loads(made.content))))
    assert source.kind.name == name and list(source) == made.rows


def test_an_array_of_mooncake_records(put: Put) -> None:
    made = MAKERS["mooncake"](100)
    array = f" [{','.join(made.content.decode().splitlines())}]\n"
    assert list(TraceSource(put("\ufeff" + array))) == made.rows


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", ["table", "azure"])
def test_parquet(put: Put, name: str, packed: bool) -> None:
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    made = MAKERS[name]()
    options = pacsv.ParseOptions(newlines_in_values=True)
    buffer = io.BytesIO()
    pq.write_table(pacsv.read_csv(io.BytesIO(made.content), parse_options=options), buffer)
    path = put(gzip.compress(buffer.getvalue()) if packed else buffer.getvalue())
    assert list(TraceSource(path)) == made.rows


def test_what_is_no_request_is_left_out_and_counted(put: Put) -> None:
    source = TraceSource(put(MAKERS["burstgpt"]().content))
    failed = MAKERS["burstgpt"]().content.count(b",0,")
    list(source)
    assert 80 < source.left_out["failed requests (no tokens)"] == failed < 150


def test_messages_that_are_left_out(put: Put) -> None:
    order = "gpt human human gpt system user assistant human"
    messages = [{"from": role, "value": str(number) * 4} for number, role in enumerate(order.split())]
    empty = [{"from": "human", "value": "x"}, {"from": "gpt", "value": ""}]
    source = TraceSource(put(json.dumps([{"conversations": messages}, {"conversations": empty}])))
    assert list(source) == [Row(None, 1, 1, "0", 1), Row(None, 1, 1, "0", 2)]
    assert source.left_out == {
        "messages without a partner": 3,
        "messages of neither human nor assistant": 1,
        "pairs with an empty text": 1,
    }


def test_bad_rows_are_skipped_counted_and_the_first_three_kept(put: Put) -> None:
    bad = [{**ONE, "input_length": value} for value in ("x", -1, None, 1.5)]
    path = put(lines(ONE, *bad, ONE) + '{"timestamp": 1\n')
    with pytest.raises(TraceError, match="line 2, column input_length: 'x' is not a whole number from 0 to 10000000"):
        list(TraceSource(path))
    source = TraceSource(path, skip_bad_rows=True)
    assert len(list(source)) == 2
    assert source.num_skipped == 5
    assert source.examples == [
        f"line {line}, column input_length: {shown} is not a whole number from 0 to 10000000"
        for line, shown in ((2, "'x'"), (3, "'-1'"), (4, "'None'"))
    ]


def test_nothing_but_bad_rows(put: Put) -> None:
    with pytest.raises(TraceError, match="has no request that can be used"):
        list(TraceSource(put(lines({**ONE, "input_length": -1})), skip_bad_rows=True))


@pytest.mark.parametrize("stamp", ["", "XXX"])
def test_azure_columns_without_times(put: Put, stamp: str) -> None:
    rows = list(TraceSource(put(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{stamp},1,2\n{stamp},3,4\n")))
    assert rows == [Row(None, 1, 2), Row(None, 3, 4)]


@pytest.mark.parametrize(("zone", "first"), [("", 0), ("Z", 0), ("+00:00", 0), ("+02:00", 7_200_000_000_000)])
def test_azure_time_zones(put: Put, zone: str, first: int) -> None:
    text = f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,2\n2023-11-16T18:15:46{zone},3,4\n"
    assert next(iter(TraceSource(put(text)))).arrival_ns == first


def test_a_bailian_chat_that_continues_none_takes_no_memory() -> None:
    reader = Bailian()
    record = {"timestamp": 1, "turn": 1, "input_length": 5, "output_length": 5, "hash_ids": []}
    tracemalloc.start()
    for number in range(10_000):
        reader.rows({"chat_id": 5000 + number, "parent_chat_id": -1, **record})
    roots = tracemalloc.get_traced_memory()[0]
    sessions = set()
    for number in range(15_000, 25_000):
        rows = reader.rows({"chat_id": number, "parent_chat_id": number - 10_000, **record})
        sessions.update(row.session_id for row in rows)
    chained = tracemalloc.get_traced_memory()[0] - roots
    tracemalloc.stop()
    assert roots < 10_000 and len(sessions) == 10_000
    assert chained < 250 * 10_000, "the docstring's bound, and the set of this test"


@pytest.mark.parametrize(("kind", "far"), [("s", 10**12), ("us", 10**18)])
def test_a_parquet_time_beyond_pythons_is_one_bad_row(put: Put, kind: str, far: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stamps = pa.array([1_700_000_000, far, 1_700_000_001], pa.timestamp(kind))
    path = put("")
    pq.write_table(pa.table({"TIMESTAMP": stamps, "ContextTokens": [1, 2, 3], "GeneratedTokens": [4, 5, 6]}), path)
    with pytest.raises(TraceError, match=r"input.dat, row 1: column TIMESTAMP: cannot be read: "):
        list(TraceSource(path))
    assert len(list(TraceSource(path, skip_bad_rows=True))) == 2


@pytest.mark.parametrize(
    ("cell", "kept"), [("1 2 3", "1 2 3"), (" 1  2 ", "1 2"), (str((1 << 63) - 1), str((1 << 63) - 1))]
)
def test_block_ids_of_a_table(put: Put, cell: str, kept: str) -> None:
    rows = list(TraceSource(put(f"num_prompt_tokens,num_output_tokens,hash_ids,hash_block_size\n1,2,{cell},16\n")))
    assert rows == [Row(None, 1, 2, hash_ids=kept, hash_block_size=16)]


def test_mooncakes_conversation_trace(shared_trace: Callable[[str], Path]) -> None:
    rows = list(TraceSource(shared_trace("mooncake_conversation_trace.jsonl")))
    assert len(rows) == 12_031 and rows[-1].arrival_ns == 3_536_999_000_000
    assert rows[0].hash_ids == "0 1 2 3 4 5 6 7 8 9 10 11 12 13"
    assert np.mean([row.num_prompt_tokens for row in rows]) == pytest.approx(12_035, abs=1)


def test_a_format_that_was_asked_for(put: Put) -> None:
    path = put(lines({"id": 1}, {"conversations": []}))
    with pytest.raises(TraceError, match="no known format; .* the file has id$"):
        TraceSource(path)
    with pytest.raises(TraceError, match="line 1: conversations is missing"):
        list(TraceSource(path, "sharegpt"))
    with pytest.raises(ConfigError, match="--format='sharegtp': must be one of auto, sharegpt"):
        TraceSource(path, "sharegtp")


def test_a_tokenizer_for_counts(put: Put) -> None:
    with pytest.raises(ConfigError, match=r"--tokenizer opt: .* \(mooncake\) holds token counts; drop the option"):
        TraceSource(put(lines(ONE)), tokenizer="opt")
