"""Figures of a trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvsim.workload.formats.row import Row
from kvsim.workload.formats.source import TraceSource
from kvsim.workload.trace_stats import TraceStats

SECOND = 1_000_000_000


def prompt(num_tokens: int, ids: str, arrival_ns: int = 0) -> Row:
    return Row(arrival_ns, num_tokens, 1, hash_ids=ids, hash_block_size=10)


def test_lengths_arrivals_and_sessions() -> None:
    rows = [Row(second * SECOND, 10 * second, 5, session) for second, session in ((4, "a"), (0, "b"), (1, "a"))]
    summary = TraceStats(rows).summary()
    assert (summary["rows"], summary["sessions"]) == (3, 2)
    assert (summary["span_s"], summary["mean_rate"]) == (4.0, 0.75)
    assert summary["cv_of_gaps"] == pytest.approx(0.5)  # gaps of 1 and 3 s
    assert [summary[f"{point}_prompt_tokens"] for point in ("p10", "p50", "p90", "max")] == [2, 10, 34, 40]
    assert summary["mean_prompt_tokens"] == pytest.approx(50 / 3)
    assert summary["mean_output_tokens"] == summary["p99_output_tokens"] == 5


def test_what_a_trace_does_not_know_is_none() -> None:
    summary = TraceStats([Row(None, 1, 2)]).summary()
    unknown = {name for name, value in summary.items() if value is None}
    assert unknown == {
        "sessions",
        *("span_s", "mean_rate", "cv_of_gaps"),
        *("hash_blocks", "repeated_block_share", "infinite_cache_hit_share"),
    }


@pytest.mark.parametrize("times", [[3], [3, 3]])
def test_one_instant_has_no_rate(times: list[int]) -> None:
    summary = TraceStats([Row(time, 1, 2) for time in times]).summary()
    assert (summary["span_s"], summary["mean_rate"], summary["cv_of_gaps"]) == (0, None, None)


@pytest.mark.parametrize(
    ("second", "hit", "repeated"),
    [
        (prompt(25, "1 2 3"), 25, 3),
        (prompt(29, "1 2 3"), 20, 3),  # the last block is longer than the one seen
        (prompt(25, "1 9 3"), 10, 2),  # no hit behind a gap
        (prompt(25, "9 2 3"), 0, 2),
        (prompt(30, "1 2 9"), 20, 2),
        (prompt(5, ""), 0, 0),
    ],
)
def test_prefix_reuse(second: Row, hit: int, repeated: int) -> None:
    stats = TraceStats([prompt(25, "1 2 3"), second])
    assert stats.reuse is not None
    assert list(stats.reuse.hit_tokens) == [0, hit]
    assert stats.reuse.num_repeated == repeated
    share = stats.summary()["infinite_cache_hit_share"]
    assert share == pytest.approx(hit / (25 + second.num_prompt_tokens))


def test_a_short_tail_does_not_replace_the_full_block() -> None:
    rows = [Row(0, num_tokens, 1, hash_ids="5", hash_block_size=16) for num_tokens in (16, 8, 16, 8, 9)]
    stats = TraceStats(rows)
    assert stats.reuse is not None
    assert list(stats.reuse.hit_tokens) == [0, 0, 16, 8, 0]
    assert stats.reuse.num_repeated == 4


def test_blocks_of_other_sizes_are_other_blocks() -> None:
    other = Row(0, 25, 1, hash_ids="1 2 3", hash_block_size=20)
    stats = TraceStats([prompt(25, "1 2 3"), other])
    assert stats.reuse is not None and stats.reuse.num_repeated == 0


def test_mooncakes_conversation_trace(shared_trace: Callable[[str], Path]) -> None:
    summary = TraceStats(TraceSource(shared_trace("mooncake_conversation_trace.jsonl"))).summary()
    assert summary["hash_blocks"] == 288_500
    assert summary["repeated_block_share"] == pytest.approx(0.3664, abs=5e-5)
    assert summary["infinite_cache_hit_share"] == pytest.approx(0.37362, abs=5e-6)
    assert summary["mean_rate"] == pytest.approx(12_031 / 3536.999)
