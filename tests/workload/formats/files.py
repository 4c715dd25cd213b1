"""Files as the publishers of traces lay them out, made up, with the rows that an import must give."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from kvsim.workload.formats.row import Row

WORDS = ("cache", "block", "漢字", "naïve", "\n", "😀", "a" * 40, '"', "\\", "{[")


class Made(NamedTuple):
    """Content of a file and what it says."""

    content: bytes
    rows: list[Row]


def words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 60)))


def chars4(text: str) -> int:
    return (len(text) + 3) // 4


def sharegpt(count: int = 1000) -> Made:
    """Conversations of 0 to 4 exchanges; some begin with an answer, hold a system message or end with a question."""
    rng = random.Random(1)
    conversations, rows = [], []
    number = 0
    while len(rows) < count:
        name = f"c{number}_0"
        messages = [{"from": "system", "value": "Be kind."}] if rng.random() < 0.1 else []
        if rng.random() < 0.2:
            messages.append({"from": "gpt", "value": "And so on."})
        for turn in range(1, rng.randint(0, 4) + 1):
            question, answer = words(rng), words(rng)
            messages += [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
            rows.append(Row(None, chars4(question), chars4(answer), name, turn))
        if rng.random() < 0.2:
            messages.append({"from": "human", "value": "Are you there?"})
        conversations.append({"id": name, "conversations": messages})
        number += 1
    return Made(json.dumps(conversations, ensure_ascii=False, indent=rng.choice((None, 2))).encode(), rows)


def alpaca(count: int = 1000) -> Made:
    rng = random.Random(2)
    records, rows = [], []
    for _ in range(count):
        instruction, extra, output = words(rng), rng.choice(("", words(rng))), words(rng)
        records.append({"instruction": instruction, "input": extra, "output": output})
        rows.append(Row(None, chars4(instruction + ("\n" + extra if extra else "")), chars4(output)))
    return Made(json.dumps(records).encode(), rows)


def azure(count: int = 1000) -> Made:
    """Tenths of microseconds; the earliest line is not the first."""
    rng = random.Random(3)
    ticks = [rng.randrange(600_000_000) for _ in range(count)]
    start = min(ticks)
    lines, rows = ["TIMESTAMP,ContextTokens,GeneratedTokens"], []
    for tick in ticks:
        seconds, fraction = divmod(tick, 10_000_000)
        prompt, output = rng.randint(1, 9000), rng.randint(1, 900)
        lines.append(f"2023-11-16 23:59:{seconds:02d}.{fraction:07d},{prompt},{output}")
        rows.append(Row((tick - start) * 100, prompt, output))
    return Made("\r\n".join(lines).encode(), rows)


def burstgpt(count: int = 1000) -> Made:
    """One request in ten failed."""
    rng = random.Random(4)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ["Timestamp", "Session ID", "Elapsed time", "Model", "Request tokens", "Response tokens", "Total tokens"]
    writer.writerow([*names, "Log Type"])
    rows: list[Row] = []
    tenths = 0
    while len(rows) < count:
        tenths += rng.randint(0, 50)
        prompt, output, session = rng.randint(1, 4000), rng.randint(1, 800), rng.randint(1, 99)
        if rng.random() < 0.1:
            output = 0
        model, log = rng.choice(("ChatGPT", "GPT-4")), "Conversation log"
        writer.writerow([tenths / 10, session, 1.5, model, prompt, output, prompt + output, log])
        if output:
            rows.append(Row(tenths * 100_000_000, prompt, output, str(session)))
    return Made(text.getvalue().encode(), rows)


def _blocks(rng: random.Random, prompt: int, size: int) -> list[int]:
    return [rng.randrange(50), *(rng.randrange(1 << 62) for _ in range(-(-prompt // size) - 1))]


def mooncake(count: int = 1000) -> Made:
    rng = random.Random(5)
    lines, rows = [], []
    for number in range(count):
        prompt, output = rng.randint(1, 20_000), rng.randint(1, 500)
        ids = _blocks(rng, prompt, 512)
        record = {"timestamp": number * 3, "input_length": prompt, "output_length": output, "hash_ids": ids}
        lines.append(json.dumps(record))
        text = " ".join(map(str, ids))
        rows.append(Row(number * 3_000_000, prompt, output, hash_ids=text, hash_block_size=512))
    return Made("\n".join(lines).encode(), rows)


def bailian(count: int = 1000) -> Made:
    """A chat continues one of the last twenty, or one before the file begins, or starts anew."""
    rng = random.Random(6)
    lines, rows = [], []
    chats: list[tuple[int, int, int]] = []
    for number in range(count):
        chat = 5000 + number
        parent, session, turn = rng.choice(chats[-20:]) if chats and rng.random() < 0.6 else (-1, chat, 0)
        if parent == -1 and rng.random() < 0.1:
            parent = session = rng.randrange(5000)
            turn = 3
        chats.append((chat, session, turn + 1))
        prompt, output = rng.randint(1, 2000), rng.randint(1, 500)
        ids = _blocks(rng, prompt, 16)
        record: dict[str, Any] = {
            "chat_id": chat,
            "parent_chat_id": parent,
            "timestamp": number / 8,
            "input_length": prompt,
            "output_length": output,
            "type": "text",
            "turn": turn + 1,
            "hash_ids": ids,
        }
        lines.append(json.dumps(record))
        text = " ".join(map(str, ids))
        rows.append(Row(number * 125_000_000, prompt, output, str(session), turn + 1, None, text, 16))
    return Made(("\n".join(lines) + "\n").encode(), rows)


def table(count: int = 1000) -> Made:
    """All columns, in another order, beside one that is not ours; some cells are empty."""
    rng = random.Random(7)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ["num_output_tokens", "num_prompt_tokens", "arrival_time_s", "session_id", "turn", "priority"]
    writer.writerow([*names, "hash_ids", "hash_block_size", "note"])
    rows = []
    for number in range(count):
        prompt, output = rng.randint(0, 3000), rng.randint(0, 300)
        session, turn = rng.choice(((None, None), ("a, b", 1), (str(number), 2)))
        ids, size = rng.choice(((None, None), ("7 8 9", 16)))
        row = Row(number * 1_000_001, prompt, output, session, turn, rng.choice((None, -1, 5)), ids, size)
        seconds = f"{number * 1_000_001 / 1e9:.9f}"
        writer.writerow([output, prompt, seconds, *row[3:], "multi\nline"])
        rows.append(row)
    return Made(text.getvalue().encode(), rows)


MAKERS: dict[str, Callable[..., Made]] = {
    maker.__name__: maker for maker in (sharegpt, alpaca, azure, burstgpt, mooncake, bailian, table)
}
