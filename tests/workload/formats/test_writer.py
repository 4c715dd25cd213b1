"""Trace tables: round trips, replays, all or nothing."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvsim.errors import ConfigError, TraceError
from kvsim.protocols import Arrival, Workload
from kvsim.workload.formats import writer
from kvsim.workload.formats.row import COLUMNS, Row
from kvsim.workload.formats.source import FORMATS, TraceSource
from kvsim.workload.formats.writer import write_table
from kvsim.workload.trace import TraceWorkload
from tests.workload.formats.files import MAKERS

Put = Callable[..., Path]
Drain = Callable[[Workload], list[Arrival]]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_table_reads_back_as_it_was_written(put: Put, tmp_path: Path, name: str, suffix: str) -> None:
    made = MAKERS[name]()
    source = TraceSource(put(made.content))
    out = tmp_path / f"out{suffix}"
    assert write_table(out, source, source.columns, source.path) == len(made.rows)
    again = TraceSource(out)
    assert again.kind.name == "table" and again.columns == source.columns
    assert list(again) == made.rows
    assert sorted(os.listdir(tmp_path)) == ["input.dat", out.name]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_import_replays(put: Put, tmp_path: Path, drain: Drain, name: str, suffix: str) -> None:
    made = MAKERS[name]()
    source = TraceSource(put(made.content))
    path = str(tmp_path / f"out{suffix}")
    write_table(Path(path), source, source.columns)
    lengths = {row: (r.num_prompt_tokens, r.num_output_tokens) for row, r in enumerate(made.rows)}

    timed = drain(TraceWorkload(path, arrivals="poisson", rate=2.0))
    assert {a.request.request_id: (a.request.num_prompt_tokens, a.num_output_tokens) for a in timed} == lengths
    if made.rows[0].arrival_ns is None:
        with pytest.raises(TraceError, match="has no arrival times; give workload.arrivals=poisson rate=2$"):
            TraceWorkload(path)
        assert [a.request.request_id for a in timed] == list(lengths), "the file's order"
        return
    own = drain(TraceWorkload(path))
    assert {a.request.request_id: a.request.arrival_ns for a in own} == {
        row: r.arrival_ns for row, r in enumerate(made.rows)
    }
    rescaled = drain(TraceWorkload(path, rescale=True, rate=4.0))
    span = rescaled[-1].request.arrival_ns - rescaled[0].request.arrival_ns
    assert len(rescaled) / span * 1e9 == pytest.approx(4.0)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_file_replays_as_its_import_does(put: Put, tmp_path: Path, drain: Drain, name: str, packed: bool) -> None:
    made = MAKERS[name]()
    path = put(gzip.compress(made.content, 1) if packed else made.content)
    out = tmp_path / "out.parquet"
    source = TraceSource(path)
    write_table(out, source, source.columns)
    packed_out = put(gzip.compress(out.read_bytes()), "out.gz")
    options: dict[str, Any] = {} if made.rows[0].arrival_ns is not None else {"arrivals": "poisson", "rate": 2.0}
    own = drain(TraceWorkload(str(path), **options))
    assert len(own) == len(made.rows)
    assert own == drain(TraceWorkload(str(out), **options)) == drain(TraceWorkload(str(packed_out), **options))


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_azure_columns_without_times_replay(put: Put, tmp_path: Path, drain: Drain, suffix: str) -> None:
    source = TraceSource(put("TIMESTAMP,ContextTokens,GeneratedTokens\nXXX,1,2\nXXX,3,4\n"))
    out = tmp_path / f"out{suffix}"
    write_table(out, source, source.columns)
    for path in (out, source.path):
        with pytest.raises(TraceError, match="has no arrival times"):
            TraceWorkload(str(path), rescale=True, rate=2.0)
        assert len(drain(TraceWorkload(str(path), arrivals="all_at_once"))) == 2


def test_nothing_is_left_of_a_table_that_fails(tmp_path: Path) -> None:
    def rows() -> Iterator[Row]:
        yield from [Row(0, 1, 1)] * 100
        raise KeyboardInterrupt

    out = tmp_path / "out.parquet"
    out.write_text("older")
    with pytest.raises(KeyboardInterrupt):
        write_table(out, rows(), list(COLUMNS)[:3])
    assert os.listdir(tmp_path) == ["out.parquet"] and out.read_text() == "older"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.json", "must end in .parquet or .csv"),
        ("none/out.csv", "cannot be written: No such file"),
        ("folder.csv", "is a folder"),
        ("link.csv", "is the file that is read"),
        ("input.csv", "is the file that is read"),
    ],
)
def test_where_no_table_can_go(tmp_path: Path, name: str, message: str) -> None:
    source = tmp_path / "input.csv"
    source.write_text("kept")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "link.csv").symlink_to(source)
    with pytest.raises(ConfigError, match=message):
        write_table(tmp_path / name, [Row(0, 1, 1)], list(COLUMNS)[:3], source)
    assert source.read_text() == "kept" and len(os.listdir(tmp_path)) == 3


def test_no_rows(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="would have no rows"):
        write_table(tmp_path / "out.csv", [], list(COLUMNS)[:3])
    assert os.listdir(tmp_path) == []


def test_row_groups_are_bounded_by_rows_and_by_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    def sizes() -> list[int]:
        meta = pq.read_metadata(tmp_path / "out.parquet")
        return [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]

    rows = [Row(0, 1, 1, hash_ids="1 2 3", hash_block_size=1)] * 25
    monkeypatch.setattr(writer, "ROW_GROUP", 10)
    write_table(tmp_path / "out.parquet", rows, list(COLUMNS))
    assert sizes() == [10, 10, 5]
    monkeypatch.setattr(writer, "MAX_TEXT", 19)
    write_table(tmp_path / "out.parquet", rows, list(COLUMNS))
    assert sizes() == [4, 4, 4, 4, 4, 4, 1]
