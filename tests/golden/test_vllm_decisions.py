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


def read(name: str) -> Any:
    path = DECISIONS / f"{name}.json.gz"
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
@pytest.mark.parametrize("name", ["light", "storm"])
def test_every_step_is_the_real_schedulers(name: str, fast_forward: bool) -> None:
    recorded = read(name)
    log = simulated(recorded, fast_forward)
    assert len(log.steps) == len(recorded["log"])
    for step, row in zip(log.steps, recorded["log"], strict=True):
        assert step.start_ns == row["step"] * SECOND
        assert step.scheduled == scheduled(row), row["step"]
        assert step.preempted == sorted(row["preempted"]), row["step"]
        assert step.finished == sorted(row["finished"]), row["step"]
        # the log's queues are those after the step's end
        assert (step.running - len(step.finished), step.waiting) == (row["running"], row["waiting"]), row["step"]
    assert all(outcome.state == "completed" for outcome in log.requests.values())


def test_one_block_more_is_noticed() -> None:
    """The null block counts: the storm's decisions come out of a pool of exactly this size."""
    recorded = read("storm")
    recorded["scenario"]["blocks"] += 1
    log = simulated(recorded, fast_forward=True)
    assert [step.scheduled for step in log.steps] != [scheduled(row) for row in recorded["log"]]


def scheduled(row: Any) -> list[tuple[int, int]]:
    return [(int(request_id), tokens) for request_id, tokens in row["scheduled"].items()]
