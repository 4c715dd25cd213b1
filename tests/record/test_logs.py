"""Decision log and block log, by hand and of whole runs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsim.record.logs import BlockObserver, PlanObserver
from kvsim.request import Request, Sequence
from tests.harness import PREEMPTING, SYSTEMS, Log, build, execute, setup, tight, write
from tests.record.plans import decodes, plan
from tests.reference.records import Job, Setup

Case = tuple[Setup, list[Job]]
Interval = tuple[int, float, float, int]
"""Block, start and end in seconds, owner."""


def crowd(system: str) -> Case:
    """Twenty requests, most of which have to wait, or to go and to come again."""
    jobs = [Job(500 * row, 3 + row % 7, 6 + 5 * (row % 4)) for row in range(20)]
    return setup(system, num_blocks=30, block_size=4, max_model_len=32), jobs


class Lines:
    """Keeps what `PlanLog` would write."""

    def __init__(self) -> None:
        self.written: list[tuple[Any, ...]] = []

    def write(self, step: int, start: int, ids: Any, tokens: Any, preempted: list[int], finished: list[int]) -> None:
        self.written.append((step, start, ids.tolist(), tokens.tolist(), preempted, finished))


class Rows:
    """Keeps what a `ParquetStream` of blocks would."""

    def __init__(self) -> None:
        self.intervals: list[Interval] = []

    def write(self, columns: dict[str, list[Any]]) -> None:
        names = ("block", "start_s", "end_s", "owner")
        assert columns.keys() == set(names)
        self.intervals += zip(*(columns[name] for name in names), strict=True)


def sequence(seq_id: int) -> Sequence:
    return Sequence(seq_id, Request(seq_id, 0, 4))


class TestPlanObserver:
    def test_the_first_repeat_preempts_and_the_last_finishes(self) -> None:
        lines = Lines()
        observer = PlanObserver(lines)  # type: ignore[arg-type]
        observer.begin(decodes(4, 5, step=7, preempted=(9, 3)), 100, np.array([10, 20, 30]))
        assert lines.written == [], "nobody knows yet who finishes"
        observer.end([sequence(1), sequence(0)], 160)
        assert lines.written == [
            (7, 100, [0, 1], [1, 1], [3, 9], []),
            (8, 110, [0, 1], [1, 1], [], []),
            (9, 130, [0, 1], [1, 1], [], [0, 1]),
        ]

    def test_a_single_step_does_both(self) -> None:
        lines = Lines()
        observer = PlanObserver(lines)  # type: ignore[arg-type]
        observer.begin(plan([(5, 0, 4, 1)], preempted=(6,)), 0, np.array([10]))
        observer.end([sequence(5)], 10)
        assert lines.written == [(0, 0, [5], [4], [6], [5])]

    def test_the_file_of_a_run(self, tmp_path: Path) -> None:
        case, jobs = crowd("vllm_v1")
        write(build(case, jobs), tmp_path)
        with gzip.open(tmp_path / "plans.jsonl.gz", "rt") as file:
            lines = [json.loads(line) for line in file]
        steps = execute(build(case, jobs, fast_forward=False)).steps
        assert any(step.preempted for step in steps)
        assert lines == [
            {
                "step": step.step,
                "start_s": step.start_ns / 1e9,
                "scheduled": [list(row) for row in step.scheduled],
                "preempted": step.preempted,
                "finished": step.finished,
            }
            for step in steps
        ]


class TestBlockObserver:
    def test_intervals_open_with_the_table_and_close_with_the_owner(self) -> None:
        rows = Rows()
        observer = BlockObserver(rows)  # type: ignore[arg-type]
        observer.begin(plan([(0, 0, 4, 1), (1, 0, 8, 1)], {0: [5], 1: [2, 7]}), 0, np.array([1000]))
        observer.end([], 1000)
        observer.begin(plan([(0, 4, 1, 1)], {0: [5, 2]}, preempted=(1,)), 1000, np.array([500]))
        observer.end([sequence(0)], 1500)
        assert rows.intervals == [(2, 0, 1e-6, 1), (7, 0, 1e-6, 1), (5, 0, 1.5e-6, 0), (2, 1e-6, 1.5e-6, 0)]

    def test_who_is_preempted_before_he_ever_ran_owned_nothing(self) -> None:
        rows = Rows()
        BlockObserver(rows).begin(plan([], preempted=(3,)), 0, np.array([10]))  # type: ignore[arg-type]
        assert rows.intervals == []

    @pytest.mark.parametrize("system", SYSTEMS)
    @pytest.mark.parametrize("case", [crowd, partial(tight, seed=1), partial(tight, seed=2)])
    def test_intervals_of_a_run_are_exactly_who_owned_what(self, system: str, case: Callable[[str], Case]) -> None:
        rows = Rows()
        limits, jobs = case(system)
        log = execute(build(limits, jobs, fast_forward=False), BlockObserver(rows))  # type: ignore[arg-type]
        assert sorted(rows.intervals) == owned(log)
        assert disjoint(rows.intervals)
        if case is crowd and system in PREEMPTING:
            assert any(step.preempted for step in log.steps)

    def test_the_file_of_a_run(self, tmp_path: Path) -> None:
        import pyarrow.parquet as pq

        case, jobs = crowd("vllm_v1")
        write(build(case, jobs, record_blocks=True), tmp_path)
        table = pq.read_table(tmp_path / "blocks.parquet").to_pydict()
        log = execute(build(case, jobs, fast_forward=False))
        assert sorted(zip(*(table[name] for name in ("block", "start_s", "end_s", "owner")), strict=True)) == owned(log)

    def test_blocks_of_the_unfinished_are_theirs_until_the_run_ends(self) -> None:
        rows = Rows()
        jobs = [Job(0, 8, 4), Job(0, 8, 40)]
        run = build(setup("vllm_v1"), jobs, fast_forward=False, drain=False, duration_ns=10_000)
        execute(run, BlockObserver(rows))  # type: ignore[arg-type]
        assert {owner for *_, owner in rows.intervals} == {0, 1}
        assert {end for _, _, end, owner in rows.intervals if owner == 1} == {1e-5}


def owned(log: Log) -> list[Interval]:
    """Maximal runs of steps in which a block is in a sequence's table."""
    open_since: dict[tuple[int, int], int] = {}
    found = []
    before = 0
    for step in log.steps:
        assert step.tables is not None
        now = {(block, owner) for owner, table in step.tables.items() for block in table}
        for block, owner in open_since.keys() - now:
            found.append((block, open_since.pop((block, owner)) / 1e9, before / 1e9, owner))
        for pair in now:
            open_since.setdefault(pair, step.start_ns)
        before = step.end_ns
    return sorted(found + [(block, start / 1e9, before / 1e9, owner) for (block, owner), start in open_since.items()])


def disjoint(intervals: list[Interval]) -> bool:
    """Whether every block has at most one owner at a time."""
    ordered = sorted(intervals)
    return all(one[0] != two[0] or one[2] <= two[1] for one, two in pairwise(ordered))
