"""Jumping equals stepping: what `max_repeats` promises, `advance` keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.plan import StepPlan
from tests.harness import ORACLES, RESERVING, SYSTEMS
from tests.sched.driver import Decision, Driver, decision, drive

Job = tuple[int, int, int]
"""Step of arrival, prompt, output."""

MAX_MODEL_LEN = 32


class Case(NamedTuple):
    system: str
    num_blocks: int
    block_size: int
    limits: dict[str, int | None]
    jobs: list[Job]

    def driver(self) -> Driver:
        """The system; requests that would be rejected on arrival are left out of `jobs`."""
        parts = SYSTEMS[self.system]
        oracle = {"oracle": SimpleNamespace(num_output_tokens=lambda request_id: self.jobs[request_id][2])}
        extra: dict[str, Any] = oracle if self.system in ORACLES else {}
        pool = parts.allocator(self.num_blocks, self.block_size, max_model_len=MAX_MODEL_LEN, **extra)
        driver = drive(parts.scheduler, pool, **self.limits)
        scheduler = driver.scheduler
        longest = min(pool.max_sequence_tokens, scheduler.max_prompt_tokens)
        self.jobs[:] = [job for job in self.jobs if job[1] + job[2] <= longest]
        return driver


@st.composite
def cases(draw: st.DrawFn, system: str) -> Case:
    block_size = draw(st.sampled_from([1, 4, 16]))
    blocks = MAX_MODEL_LEN // block_size
    fewest, most = (blocks, 4 * blocks) if system in RESERVING else (blocks // 2 + 1, 2 * blocks)
    num_blocks = draw(st.integers(fewest, most))
    limits = {
        "max_num_seqs": draw(st.none() | st.integers(1, 4)),
        "max_num_batched_tokens": draw(st.none() | st.integers(1, 60)),
    }
    jobs = st.tuples(st.integers(0, 3) | st.integers(0, 30), st.integers(1, 10), st.integers(1, 20))
    return Case(system, num_blocks, block_size, limits, sorted(draw(st.lists(jobs, min_size=2, max_size=12))))


class Trail(NamedTuple):
    """Every step's decision, slots held in it, and the block tables where they could be looked at."""

    decisions: list[Decision]
    held: list[int]
    tables: dict[int, dict[int, list[int]]]
    ended: list[int]


def follow(case: Case, jump: bool) -> Trail:
    driver = case.driver()
    coming = list(case.jobs)
    trail = Trail([], [], {}, driver.ended)
    while True:
        step = len(trail.decisions)
        if not driver.scheduler.num_unfinished and coming:
            step = max(step, coming[0][0])
        while coming and coming[0][0] <= step:
            driver.add(*coming.pop(0)[1:])
        plan = driver.plan()
        if not len(plan.seq_ids):
            assert not coming, "an empty plan although requests are queued"
            return trail
        repeats = driver.repeats(plan) if jump else 1
        if coming:
            repeats = min(repeats, max(1, coming[0][0] - step))
        record(trail, plan, driver, repeats)


def record(trail: Trail, plan: StepPlan, driver: Driver, repeats: int) -> None:
    held = driver.allocator.usage().held
    trail.tables[plan.step] = {seq_id: list(table) for seq_id, table in driver.allocator.tables.items()}
    trail.decisions.extend(decision(plan, nth) for nth in range(repeats))
    trail.held.extend(held + slots for slots in driver.finish(plan, repeats))


@pytest.mark.parametrize("system", SYSTEMS)
@given(data=st.data())
def test_repeats_are_what_stepping_would_decide(system: str, data: st.DataObject) -> None:
    case = data.draw(cases(system))
    stepped, jumped = follow(case, jump=False), follow(case, jump=True)
    assert jumped.decisions == stepped.decisions
    assert jumped.held == stepped.held
    assert jumped.ended == stepped.ended
    assert all(stepped.tables[step] == tables for step, tables in jumped.tables.items())
    assert sorted(stepped.ended) == list(range(len(case.jobs)))


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_long_answer_alone_is_one_jump(system: str) -> None:
    case = Case(system, 32, 4, {}, [(0, 4, 28)])
    driver = case.driver()
    driver.add(4, 28)
    driver.step()
    plan = driver.plan()
    assert driver.repeats(plan) == 27
    driver.finish(plan, 27)
    assert driver.ended == [0]
