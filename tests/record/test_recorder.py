"""`Recorder`: flushes change nothing, misfits are data, files say what the tables hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kvsim.metrics import StepTotals
from kvsim.plan import PHASES
from kvsim.record import recorder as module
from kvsim.record.recorder import Recorder
from kvsim.request import Request, Sequence, Status
from tests.harness import SYSTEMS, Tables, build, setup, simulate, tight, write
from tests.record.plans import decodes, plan, result, usage
from tests.reference.records import Job


def read(path: Path) -> dict[str, list[Any]]:
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pydict()


def test_a_run_of_two_requests_by_hand() -> None:
    """Two plans: both prompts, then two decodes of each; the second request waits a moment before it came."""
    tables = Tables()
    recorder = Recorder(StepTotals(0, None, 64), tables)
    requests = [Request(0, 0, 4), Request(1, 0, 3)]
    for waiting, request in enumerate(requests, start=1):
        recorder.arrive(request, 3, waiting)
    prompts = plan([(0, 0, 4, 1), (1, 0, 3, 1)])
    recorder.begin_plan(prompts, 0, result(100), usage(64, 7, 8), result(0).durations)
    recorder.end_plan(prompts, result(100), [], 100)
    steps, carried = decodes(4, 3, step=1), result(10, 20, stopped=(0, 1))
    recorder.begin_plan(steps, 100, carried, usage(64, 9, 12), result(0, 0).durations)
    recorder.end_plan(steps, carried, [Sequence(seq.request_id, seq) for seq in requests], 130)
    summary = recorder.finish(10**12)
    assert summary["completed"] == 2
    assert summary["steps"] == 3
    assert summary["mean_ttft_ms"] == 100 / 1e6
    assert summary["mean_tpot_ms"] == 15 / 1e6
    assert summary["kv_token_state_frac"] == (7 * 100 + 9 * 10 + 11 * 20) / (130 * 64)
    assert tables.steps()["token_state"] == [7, 9, 11]
    assert tables.requests[1].finished_ns == 130


@pytest.mark.parametrize("system", SYSTEMS)
def test_how_often_rows_are_flushed_changes_nothing(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulate(*tight(system, seed=7))
    monkeypatch.setattr(module, "FLUSH_PLANS", 3)
    parts = simulate(*tight(system, seed=7))
    assert parts.columns == whole.columns
    assert parts.summary == whole.summary
    assert len(whole.steps) > 30


def test_misfits_are_rows_with_a_reason_the_others_complete(tmp_path: Path) -> None:
    jobs = [Job(0, 5, 4), Job(0, 0, 4), Job(10, 5, 0), Job(20, 60, 5), Job(30, 20, 10), Job(40, 3, 2)]
    case = setup("vllm_v1", num_blocks=6, max_model_len=64)
    write(build(case, jobs), tmp_path)
    table = read(tmp_path / "requests.parquet")
    assert table["request_id"] == [0, 1, 2, 3, 4, 5]
    assert table["state"] == ["completed", *["rejected"] * 4, "completed"]
    causes = ["prompt is empty", "no output tokens", "65 > max_model_len 64", "30 > 24.* empty pool"]
    assert table["reason"][0] is table["reason"][-1] is None
    for reason, cause in zip(table["reason"][1:-1], causes, strict=True):
        assert re.search(cause, reason)
    assert [finished is None for finished in table["finished_s"]] == [False, True, True, True, True, False]
    assert [first is None for first in table["first_token_s"]] == [False, True, True, True, True, False]


def test_a_prompt_over_the_budget_is_named_where_prompts_are_not_split() -> None:
    case = setup("vllm_v0", max_num_batched_tokens=20)
    log = simulate(case, [Job(0, 15, 6), Job(0, 15, 5)])
    assert log.finished(Status.REJECTED) == [0]
    assert "21 > max_num_batched_tokens 20" in log.requests[0].reason


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_files_are_the_tables_in_seconds(system: str, tmp_path: Path) -> None:
    case, jobs = tight(system, seed=3)
    log = simulate(case, jobs)
    write(build(case, jobs), tmp_path)
    steps, memory = read(tmp_path / "steps.parquet"), read(tmp_path / "memory.parquet")
    assert steps["start_s"] == [start / 1e9 for start in log.columns["start_ns"]]
    assert steps["duration_s"] == [duration / 1e9 for duration in log.columns["duration_ns"]]
    unmeasured = {f"{phase}_s" for phase in PHASES}
    assert all(steps[name] == [None] * len(steps["step"]) for name in unmeasured)
    for name in steps.keys() - unmeasured - {"start_s", "duration_s"}:
        assert steps[name] == log.columns[name], name
    for name in memory:
        assert memory[name] == log.columns[name], name
    requests = read(tmp_path / "requests.parquet")
    assert requests["state"] == [log.requests[request_id].state for request_id in requests["request_id"]]
    assert requests["num_preemptions"] == [log.requests[row].num_preemptions for row in requests["request_id"]]
