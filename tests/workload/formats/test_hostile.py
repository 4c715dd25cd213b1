"""Files that are broken, strange or meant to harm: one line of explanation each."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kvsim.errors import TraceError
from kvsim.workload.formats.record import MAX_RECORD
from kvsim.workload.formats.source import TraceSource

Put = Callable[..., Path]

HEADER = "arrival_time_s,num_prompt_tokens,num_output_tokens\n"
LINE = '{"timestamp": 1, "input_length": 10, "output_length": 5, "hash_ids": [1]}\n'
CHAT = json.dumps(
    [{"id": "a", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}]}] * 3
)
PAIR = '{"instruction": "a", "output": "b"}'
LONG = "x" * (MAX_RECORD + 1)

CASES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "is empty"),
    "blank": (" \n \n", "is empty"),
    "binary": (bytes(range(256)) * 50, "is binary"),
    "program": (b"\x7fELF\x02\x01\x01\0\0" * 40, "is binary"),
    "utf-16": (LINE.encode("utf-16"), "is UTF-16 or UTF-32 text; turn it into UTF-8"),
    "utf-16 without mark": (LINE.encode("utf-16-le"), "is binary"),
    "latin-1 array": (b'[{"instruction": "\xe9", "output": "b"}]', "not UTF-8 text"),
    "latin-1 line": (LINE.encode() + b'{"a": "\xe9"}\n', "line 2: not UTF-8 text"),
    "latin-1 csv": (HEADER.encode() + b"1,2,3\n1,2,\xe9\n", "line 3: not UTF-8 text"),
    "array cut in an entry": (CHAT[:-30], "record 3: the file ends within the array"),
    "array without end": (CHAT[:-1], "record 3: the end of the file where , or ] should be"),
    "text after the array": (CHAT + "x", "record 3: 'x' follows the end of the array"),
    "array with a broken entry": (f"[{PAIR}, {{'a': 1}}, {', '.join([PAIR] * 99)}]", "record 2: not JSON: Expecting"),
    "array without comma": (f"[{PAIR}{PAIR}]", "record 1: '{' where , or ] should be"),
    "array with comma at the end": (f"[{PAIR},]", "record 2: the file ends within the array, or not JSON"),
    "empty array": ("[ ]", "holds no JSON object"),
    "array of numbers": ("[1, 2]", "record 1: not a JSON object"),
    "line cut": (LINE * 3 + LINE[:30], "line 4: not a JSON object on a line of its own"),
    "one object over many lines": ('{\n "a": 1\n}', "line 1: not a JSON object on a line of its own"),
    "line of another kind": (LINE + "[1]\n", "line 2: not a JSON object"),
    "deep array": ("[" * 200_000, "record 1: nested too deeply"),
    "deep entry": ('[{"conversations":' + "[" * 100_000 + "]" * 100_000 + "}]", "record 1: nested too deeply"),
    "deep line": ('{"timestamp":' + "[" * 100_000, "line 1: nested too deeply"),
    "long line": ('{"a":"' + LONG + '"}', "line 1: is longer than 16777216 bytes"),
    "long entry": ('[{"a":"' + LONG + LONG + '"}]', "record 1: is longer than 16777216 characters"),
    "long csv line": (HEADER + "1,2," + LONG, "line 2: is longer than 16777216 bytes"),
    "NaN": (LINE + LINE.replace("10", "NaN"), "line 2, column input_length: 'nan'"),
    "infinite time": (LINE.replace(": 1,", ": Infinity,"), "line 1, column timestamp: 'inf'"),
    "negative time": (LINE.replace(": 1,", ": -1,"), "line 1, column timestamp: '-1' is not a number from 0"),
    "huge integer": (LINE.replace("10", "1" + "0" * 400), "line 1, column input_length: '1000"),
    "more digits than Python reads": (LINE.replace("10", "1" * 5000), "line 1: a number has thousands of digits"),
    "such digits in an array": (f'[{{"a": {"1" * 5000}}}]', "record 1: a number has thousands of digits"),
    "true": (LINE.replace("10", "true"), "column input_length: 'True'"),
    "missing key": (LINE + '{"timestamp": 1}\n', "line 2: input_length is missing"),
    "text among ids": (LINE.replace("[1]", '[1, "x"]'), "column hash_ids: 'x' is not an integer"),
    "float among ids": (LINE.replace("[1]", "[1.0]"), "column hash_ids: '1.0' is not an integer"),
    "too large an id": (LINE.replace("[1]", f"[{1 << 63}]"), "column hash_ids: '9223372036854775808'"),
    "a number for ids": (LINE.replace("[1]", "7"), "column hash_ids: '7' is not a list"),
    "ids without size": ("num_prompt_tokens,num_output_tokens,hash_ids\n1,2,3\n", "line 2: hash_block_size is empty"),
    "message without text": (CHAT.replace('"yo"', "3", 1), "record 1, column conversations: a list holds a message"),
    "conversation of one text": ('[{"conversations": "hi"}]', "column conversations: 'hi' is not a list of messages"),
    "name with escape": ('[{"id": "\\u001b[31m", "conversations": []}]', r"column id: '\\x1b\[31m' is not a name"),
    "column twice": ("num_prompt_tokens," + HEADER + "1,1,1,1\n", "column num_prompt_tokens is there more than once"),
    "column missing": ("num_prompt_tokens\n1\n", "num_output_tokens and, .* the file has num_prompt_tokens$"),
    "unknown columns": (
        "a;b\n1;2\n",
        "no known format; name the columns of a trace table num_prompt_tokens, num_output_tokens .* file has a;b$",
    ),
    "a column of Alpaca's": ("time,prompt,output\n1,2,3\n", "no known format; .* the file has time, prompt, output$"),
    "a column of Mooncake's missing": (
        "timestamp,input_length,output_length\n1,2,3\n",
        r"the file has timestamp, input_length, output_length \(mooncake has hash_ids too\)$",
    ),
    "many long names": (",".join(["z" * 100] * 50), "no known format; .* the file has z{97}\\.\\.\\.$"),
    "text as a header": (LONG[:9999] + "\n", "no known format; .* the file has x{97}\\.\\.\\.$"),
    "long text as a key": (f'{{"{LONG[:9999]}": 1}}', "no known format; .* the file has x{97}\\.\\.\\.$"),
    "long conversation of one text": (
        f'[{{"conversations": "{LONG[:9999]}"}}]',
        r"column conversations: 'x{57}\.\.\.'",
    ),
    "long name": ('[{"id": "' + "\\n" * 9999 + '", "conversations": []}]', r"column id: '(\\n)+\\?\.\.\.' is not a"),
    "escape in a header": ("\x1b[31mred,b\n1,2\n", r" \?\[31mred, b$"),
    "fields": (HEADER + "1,2,3\n\n1,2\n", "line 4: 2 fields where the header has 3"),
    "open quote": (HEADER + '1,2,3\n1,"2,3\n1,2,3\n', "line 4: not CSV"),
    "header alone": (HEADER, "has no request that can be used"),
    "a time missing": (HEADER + "1,2,3\n,2,3\n", "line 3: arrival_time_s is empty, unlike in the first row"),
    "a time too many": (HEADER + ",2,3\n1,2,3\n", "line 3: arrival_time_s is set, unlike in the first row"),
    "carriage returns alone": (HEADER.replace("\n", "\r") + "1,2,3\r", "line 1: not CSV"),
    "no timestamp": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,2\n",
        "column TIMESTAMP: 'noon' is not a",
    ),
    "month 13": ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-01 00:00:00,1,2\n", "column TIMESTAMP: '2023-13"),
    "centuries": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n1680-01-01 00:00:00,1,2\n2260-01-01 00:00:00,1,2\n",
        "line 3, column TIMESTAMP: .* is more than 1000000000 s after the earliest",
    ),
    "gzip cut": (gzip.compress(LINE.encode() * 999)[:-20], "cannot be read: Compressed file ended"),
    "gzip in name alone": (b"\x1f\x8bjunk and more", "cannot be read"),
    "gzip in gzip": (gzip.compress(gzip.compress(LINE.encode())), "is binary"),
    "parquet cut": (b"PAR1 and no more", "not a readable parquet file"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_clear_line(put: Put, case: str) -> None:
    content, message = CASES[case]
    path = put(content)
    with pytest.raises(TraceError, match=message) as caught:
        list(TraceSource(path))
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value).removeprefix(str(path))) < 300 and "\n" not in str(caught.value)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "bomb"])
def test_expanded_bytes_are_capped(put: Put, packed: bool) -> None:
    content = LINE.encode() * 10_000
    path = put(gzip.compress(content) if packed else content)
    assert len(list(TraceSource(path, max_bytes=len(content)))) == 10_000
    with pytest.raises(TraceError, match=r"holds more than 300000 bytes when expanded.*--max-bytes"):
        list(TraceSource(path, max_bytes=300_000))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        TraceSource(tmp_path / "none")
    with pytest.raises(TraceError, match="is a folder; give the path of a regular file"):
        TraceSource(tmp_path)
    with pytest.raises(TraceError, match="^-: standard input cannot be read; give the path of a trace$"):
        TraceSource(Path("-"))
    with pytest.raises(TraceError, match="n: cannot be read: File name too long$"):
        TraceSource(Path("n" * 300))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="pipe: is a pipe or device, and is not read; give the path of a regular"):
        TraceSource(tmp_path / "pipe")


def test_an_entry_may_be_cut_by_a_chunk_anywhere(put: Put) -> None:
    entry = '{"instruction": "\\u00e9\\n 123", "input": "", "output": "-1.5e3 true"}'
    for padding in range(len(entry) + 2):
        content = "[" + " " * ((1 << 20) - padding) + ",".join([entry] * 3) + "]"
        assert len(list(TraceSource(put(content)))) == 3
