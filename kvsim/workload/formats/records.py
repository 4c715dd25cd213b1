"""`open_records`: what kind of file this is, told by its first bytes and not by its name."""

from __future__ import annotations

import io
from pathlib import Path

from kvsim.errors import TraceError
from kvsim.workload.expanded import check_file, open_expanded
from kvsim.workload.formats.csv_lines import CsvLines
from kvsim.workload.formats.json_records import JsonArray, JsonLines
from kvsim.workload.formats.parquet_rows import PARQUET_MAGIC, ParquetRows
from kvsim.workload.formats.record import UTF8_MARK, Records

HEAD_BYTES = 1 << 16
WIDE_TEXT = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


def open_records(path: Path, max_bytes: int) -> Records:
    """The records of a CSV, parquet or JSON file, plain or gzip.

    Raises:
        TraceError: none of these.
    """
    check_file(path)
    with open_expanded(path, max_bytes) as file:
        head = io.BufferedReader(file, HEAD_BYTES).read(HEAD_BYTES)
    if not head.strip():
        raise TraceError(f"{path}: is empty; a trace has a header or records")
    if head.startswith(PARQUET_MAGIC):
        return ParquetRows(path, max_bytes)
    if head.startswith(WIDE_TEXT):
        raise TraceError(f"{path}: is UTF-16 or UTF-32 text; turn it into UTF-8 (iconv -f UTF-16 -t UTF-8)")
    if b"\0" in head:
        raise TraceError(f"{path}: is binary; a trace is CSV or JSON (UTF-8, plain or gzip) or parquet")
    first = head.removeprefix(UTF8_MARK).lstrip()[:1]
    if first == b"[":
        return JsonArray(path, max_bytes)
    return JsonLines(path, max_bytes) if first == b"{" else CsvLines(path, max_bytes)
