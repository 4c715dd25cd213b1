"""vllm_v1 against logs of the real vLLM 0.20.2 scheduler: every decision of every step."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.harness import SHARED, Log, setup, simulate
from tests.reference.records import Job

DECISIONS = SHARED / "reference" / "vllm-0.20.2-decisions"
SECOND = 1_000_000_000


@pytest.fixture(scope="module", params=["light", "storm"])
def recorded(request: pytest.FixtureRequest) -> Any:
    path = DECISIONS / f"{request.param}.json.gz"
    if not path.is_file():
        pytest.skip(f"recorded decisions of vLLM are not beside this checkout: {path}")
    return json.loads(gzip.decompress(path.read_bytes()))


def simulated(recorded: Any, fast_forward: bool) -> Log:
    """The log's scenario with steps of a second; vLLM keeps one of its blocks as the null block."""
    scenario = recorded["scenario"]
    jobs = [Job(row["add_before_step"] * SECOND, row["prompt"], row["output"]) for row in scenario["requests"]]
    limits = setup(
        "vllm_v1",
        num_blocks=scenario["blocks"] - 1,
        block_size=16,
        max_model_len=scenario["max_len"],
        max_num_seqs=scenario["max_seqs"],
        max_num_batched_tokens=scenario["budget"],
        step_ns=lambda facts: SECOND,
    )
    return simulate(limits, jobs, fast_forward=fast_forward)


@pytest.mark.parametrize("fast_forward", [True, False], ids=["jumping", "stepping"])
def test_every_step_is_the_real_schedulers(recorded: Any, fast_forward: bool) -> None:
    log = simulated(recorded, fast_forward)
    assert len(log.steps) == len(recorded["log"])
    for step, row in zip(log.steps, recorded["log"], strict=True):
        assert step.start_ns == row["step"] * SECOND
        assert step.scheduled == [(int(request), tokens) for request, tokens in row["scheduled"].items()], row["step"]
        assert step.preempted == sorted(row["preempted"]), row["step"]
        assert step.finished == sorted(row["finished"]), row["step"]
        # the log's queues are those after the step's end
        assert (step.running - len(step.finished), step.waiting) == (row["running"], row["waiting"]), row["step"]
    assert all(outcome.state == "completed" for outcome in log.requests.values())


def test_comparison_sees_one_block_more(recorded: Any) -> None:
    """The logs depend on the pool's exact size; a scenario that memory never touches would prove little."""
    recorded["scenario"]["blocks"] += 1
    try:
        changed = simulated(recorded, fast_forward=True)
    finally:
        recorded["scenario"]["blocks"] -= 1
    assert [step.scheduled for step in changed.steps] != [
        [(int(request), tokens) for request, tokens in row["scheduled"].items()] for row in recorded["log"]
    ]
