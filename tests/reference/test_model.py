"""The reference model against hand-computed cases, published test vectors and the real vLLM V1 scheduler's logs."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from .model import simulate
from .pools import BuddyPool, PagedPool, next_pow2
from .records import Job, Log, Setup, Step, StepFacts
from .schedulers import SCHEDULERS

DECISIONS = Path(__file__).parents[2].parent / "shared" / "reference" / "vllm-0.20.2-decisions"
RESERVING = ["fastertransformer", "orca_max", "orca_pow2", "orca_oracle"]
SECOND = 1_000_000_000
TWO_JOBS = [(0, 3, 3), (0, 2, 1)]
SMALL_POOL = dict(num_blocks=7, max_model_len=16)
"""For reserving systems with blocks of 4 tokens: chunks of 4, 2 and 1 blocks at 0, 4 and 6."""


def ten(facts: StepFacts) -> int:
    return 10


def setup(system: str, **changes: Any) -> Setup:
    values: dict[str, Any] = dict(num_blocks=64, block_size=4, max_model_len=64, max_num_seqs=None)
    values |= dict(max_num_batched_tokens=None, step_ns=ten)
    return Setup(system, **(values | changes))


def run(system: str, jobs: list[tuple[int, int, int]], **changes: Any) -> Log:
    return simulate(setup(system, **changes), [Job(*job) for job in jobs])


def memory(step: Step) -> dict[str, int]:
    return {name: tokens for name, tokens in step.memory.items() if tokens}


def scheduled(log: Log) -> list[list[tuple[int, int]]]:
    return [step.scheduled for step in log.steps]


class TestPools:
    @pytest.mark.parametrize(("output", "estimate"), [(1, 1), (2, 2), (3, 4), (25, 32), (32, 32), (33, 64)])
    def test_pow2_estimate(self, output: int, estimate: int) -> None:
        assert next_pow2(output) == estimate

    def test_buddy_cut_of_the_papers_pool(self) -> None:
        sizes = list(BuddyPool(15_728 // 16, 128).chunks.values())
        assert sizes == [128] * 7 + [64, 16, 4, 2, 1]

    def test_buddy_takes_smallest_class_then_lowest_address_and_keeps_the_lower_half(self) -> None:
        pool = BuddyPool(14, 8)
        assert pool.chunks == {0: 8, 8: 4, 12: 2}
        assert pool.take(1) == [12]
        assert pool.take(2) == [8, 9]
        assert pool.take(2) == [10, 11]
        assert pool.take(3) == [0, 1, 2, 3]
        assert pool.chunks == {13: 1, 4: 4}

    def test_buddy_merges_up_to_the_pieces_of_the_empty_pool(self) -> None:
        pool = BuddyPool(14, 8)
        tables = [pool.take(1) for _ in range(14)]
        assert pool.chunks == {}
        random.Random(0).shuffle(tables)
        for table in tables:
            pool.give(table)
        assert pool.chunks == {0: 8, 8: 4, 12: 2}

    def test_buddy_never_merges_two_largest_chunks(self) -> None:
        pool = BuddyPool(8, 4)
        for table in [pool.take(4), pool.take(4)]:
            pool.give(table)
        assert pool.chunks == {0: 4, 4: 4}

    def test_paged_free_list_is_first_in_first_out_and_tables_return_reversed(self) -> None:
        pool = PagedPool(5)
        table = pool.take(3)
        pool.give(table)
        assert table == [0, 1, 2]
        assert pool.take(5) == [3, 4, 2, 1, 0]


class TestLife:
    """Rules that hold for every system."""

    @pytest.mark.parametrize("system", SCHEDULERS)
    def test_one_request_alone(self, system: str) -> None:
        log = run(system, [(7, 5, 4)])
        assert scheduled(log) == [[(0, 5)], [(0, 1)], [(0, 1)], [(0, 1)]]
        assert [step.start_ns for step in log.steps] == [7, 17, 27, 37]
        assert [step.memory["token_state"] for step in log.steps] == [5, 6, 7, 8]
        assert log.steps[0].facts == StepFacts(1, 5, 5, 0)
        assert log.steps[3].facts == StepFacts(1, 1, 8, 1)
        outcome = log.requests[0]
        assert (outcome.state, outcome.first_token_ns, outcome.finished_ns) == ("completed", 17, 47)
        assert (outcome.num_preemptions, outcome.recomputed_tokens) == (0, 0)

    @pytest.mark.parametrize("system", SCHEDULERS)
    def test_misfits_are_rejected_and_the_others_complete(self, system: str) -> None:
        jobs = [(0, 0, 3), (0, 3, 0), (0, 60, 5), (0, 65, 1), (0, 60, 4), (5, 2, 2)]
        states = [outcome.state for outcome in run(system, jobs).requests]
        assert states == ["rejected"] * 4 + ["completed"] * 2

    @pytest.mark.parametrize("system", SCHEDULERS)
    def test_longest_sequence_of_a_small_pool(self, system: str) -> None:
        longest = 4 * 4 if system in RESERVING else 7 * 4
        jobs = [(0, longest - 1, 1), (0, longest - 1, 2), (1, 2, longest - 2)]
        log = run(system, jobs, num_blocks=7)
        assert [outcome.state for outcome in log.requests] == ["completed", "rejected", "completed"]
        assert log.requests[1].reason == "pool"

    @pytest.mark.parametrize(
        ("system", "state"), [("vllm_paper", "rejected"), ("vllm_v0", "rejected"), ("vllm_v1", "completed")]
    )
    def test_a_recomputed_sequence_must_fit_one_step_unless_chunked(self, system: str, state: str) -> None:
        log = run(system, [(0, 6, 2), (0, 6, 3)], max_num_batched_tokens=8)
        assert [outcome.state for outcome in log.requests] == ["completed", state]

    def test_an_arrival_at_the_end_of_a_step_joins_the_next_one(self) -> None:
        log = run("vllm_v1", [(10, 2, 3), (20, 2, 1), (21, 2, 1)])
        assert scheduled(log) == [[(0, 2)], [(0, 1), (1, 2)], [(0, 1), (2, 2)]]

    def test_ties_by_request_id_and_idle_jumps(self) -> None:
        log = run("vllm_v1", [(500, 1, 1), (0, 2, 1), (500, 3, 1)])
        assert scheduled(log) == [[(1, 2)], [(0, 1), (2, 3)]]
        assert [step.start_ns for step in log.steps] == [0, 500]
        assert [step.finished for step in log.steps] == [[1], [0, 2]]


class TestReserving:
    """Reservations, static and iteration-level batches."""

    def test_oracle_reserves_the_true_length(self) -> None:
        step = run("orca_oracle", TWO_JOBS, **SMALL_POOL).steps[0]
        assert step.tables == {0: [4, 5], 1: [6]}
        assert memory(step) == dict(token_state=5, reserved=4, rounding=3, free_usable=16)

    def test_pow2_reserves_the_next_power_of_two_of_the_output(self) -> None:
        log = run("orca_pow2", TWO_JOBS, **SMALL_POOL)
        assert memory(log.steps[0]) == dict(token_state=5, reserved=4, internal=1, rounding=2, free_usable=16)
        assert memory(log.steps[1]) == dict(token_state=4, reserved=2, internal=1, rounding=1, free_usable=20)

    def test_max_reserves_the_longest_sequence_and_makes_the_head_wait(self) -> None:
        log = run("orca_max", TWO_JOBS, **SMALL_POOL)
        assert memory(log.steps[0]) == dict(token_state=3, reserved=3, internal=10, free_unusable=12)
        assert [(step.waiting, step.running) for step in log.steps] == [(1, 1)] * 3 + [(0, 1)]
        assert log.requests[1].finished_ns == 40

    def test_nobody_overtakes_a_head_that_does_not_fit(self) -> None:
        log = run("orca_oracle", [(0, 3, 3), (0, 10, 6), (0, 10, 2), (0, 1, 1)], **SMALL_POOL)
        assert [row for row, _ in log.steps[0].scheduled] == [0, 1]
        assert log.steps[0].waiting == 2

    def test_decodes_come_first_then_new_prompts_in_one_batch(self) -> None:
        log = run("orca_oracle", [(0, 2, 2), (5, 3, 1)])
        assert scheduled(log) == [[(0, 2)], [(0, 1), (1, 3)]]
        assert log.steps[1].facts == StepFacts(num_seqs=2, total_tokens=4, context_tokens=6, num_decodes=1)

    def test_reservation_is_capped_at_max_model_len(self) -> None:
        changes = dict(num_blocks=983, block_size=16, max_model_len=2048)
        step = run("orca_pow2", [(0, 2000, 48)], **changes).steps[0]
        assert memory(step) == dict(token_state=2000, reserved=48, free_usable=13_680)
        step = run("orca_pow2", [(0, 1960, 33)], **changes).steps[0]
        assert memory(step)["internal"] == 1960 + 64 - 1993
        assert memory(step)["rounding"] == 2048 - 2024

    def test_orca_max_runs_exactly_seven_on_the_papers_pool(self) -> None:
        log = run("orca_max", [(0, 100, 5)] * 20, num_blocks=983, block_size=16, max_model_len=2048)
        assert log.steps[0].running == 7
        assert log.steps[0].memory["free_unusable"] == (983 - 7 * 128) * 16

    def test_a_cap_on_sequences_leaves_memory_usable(self) -> None:
        log = run("orca_oracle", [(0, 3, 1), (0, 3, 1)], max_num_seqs=1)
        assert [step.scheduled for step in log.steps] == [[(0, 3)], [(1, 3)]]
        assert log.steps[0].memory["free_usable"] == 63 * 4

    def test_static_batch_keeps_early_finishers_to_its_end(self) -> None:
        log = run("fastertransformer", [(0, 3, 1), (0, 2, 3), (0, 1, 1)], num_blocks=5, max_model_len=8)
        assert scheduled(log) == [[(0, 3), (1, 2)], [(1, 1)], [(1, 1)], [(2, 1)]]
        assert [memory(step) for step in log.steps] == [
            dict(token_state=5, reserved=4, internal=7, free_unusable=4),
            dict(token_state=3, reserved=2, internal=11, free_unusable=4),
            dict(token_state=4, reserved=1, internal=11, free_unusable=4),
            dict(token_state=1, reserved=1, internal=6, free_usable=12),
        ]
        assert [step.finished for step in log.steps] == [[], [], [0, 1], [2]]
        assert [outcome.first_token_ns for outcome in log.requests] == [10, 10, 40]
        assert [outcome.finished_ns for outcome in log.requests] == [30, 30, 40]

    def test_static_batch_lets_nobody_join_though_memory_is_free(self) -> None:
        log = run("fastertransformer", [(0, 2, 3), (5, 2, 1)], num_blocks=4, max_model_len=8)
        assert [step.running for step in log.steps] == [1, 1, 1, 1]
        assert [step.waiting for step in log.steps] == [0, 1, 1, 0]
        assert log.steps[1].memory["free_usable"] == 8


class TestVllmPaper:
    def test_the_latest_is_preempted_and_recomputed_once(self) -> None:
        log = run("vllm_paper", [(0, 3, 4), (0, 3, 2)], num_blocks=4, block_size=2, max_model_len=8)
        assert scheduled(log) == [[(0, 3), (1, 3)], [(0, 1)], [(0, 1)], [(0, 1)], [(1, 4)]]
        assert [step.preempted for step in log.steps] == [[], [1], [], [], []]
        assert [memory(step) for step in log.steps] == [
            dict(token_state=6, internal=2),
            dict(token_state=4, free_unusable=4),
            dict(token_state=5, internal=1, free_unusable=2),
            dict(token_state=6, free_unusable=2),
            dict(token_state=4, free_usable=4),
        ]
        assert [step.tables for step in log.steps[1:]] == [{0: [0, 1]}, {0: [0, 1, 3]}, {0: [0, 1, 3]}, {1: [2, 3]}]
        victim = log.requests[1]
        assert (victim.first_token_ns, victim.finished_ns) == (10, 50)
        assert (victim.num_preemptions, victim.recomputed_tokens) == (1, 3)

    def test_the_group_test_is_conservative(self) -> None:
        log = run("vllm_paper", [(0, 1, 3), (0, 1, 3)], num_blocks=2, max_model_len=8)
        assert scheduled(log) == [[(0, 1), (1, 1)], [(0, 1)], [(0, 1), (1, 2)], [(1, 1)]]
        assert [step.preempted for step in log.steps] == [[], [1], [], []]

    def test_the_last_preempts_itself(self) -> None:
        log = run("vllm_paper", [(0, 2, 2), (0, 1, 2)], num_blocks=3, block_size=2, max_model_len=6)
        assert scheduled(log) == [[(0, 2), (1, 1)], [(0, 1)], [(1, 2)]]
        assert log.steps[1].preempted == [1]

    def test_a_lone_sequence_is_never_preempted(self) -> None:
        log = run("vllm_paper", [(0, 1, 3)], num_blocks=1, max_model_len=4)
        assert scheduled(log) == [[(0, 1)], [(0, 1)], [(0, 1)]]

    def test_decode_rows_count_against_the_token_budget(self) -> None:
        log = run("vllm_paper", [(0, 2, 3), (5, 7, 1), (5, 1, 1)], max_num_batched_tokens=8)
        assert scheduled(log) == [[(0, 2)], [(0, 1), (1, 7)], [(0, 1), (2, 1)]]
        log = run("vllm_paper", [(0, 2, 3), (5, 7, 1), (5, 1, 1)], max_num_batched_tokens=8, max_num_seqs=1)
        assert scheduled(log) == [[(0, 2)], [(0, 1)], [(0, 1)], [(1, 7)], [(2, 1)]]
        assert log.steps[1].memory["free_unusable"] == 0


class TestVllmV0:
    def test_prompts_run_alone_and_before_decodes(self) -> None:
        log = run("vllm_v0", [(0, 2, 3), (5, 2, 1)])
        assert scheduled(log) == [[(0, 2)], [(1, 2)], [(0, 1)], [(0, 1)]]
        assert log.steps[1].running == 2
        assert log.steps[1].memory["token_state"] == 4

    def test_watermark_holds_at_admission_and_not_for_growth(self) -> None:
        pool = dict(num_blocks=100, block_size=1, max_model_len=200)
        log = run("vllm_v0", [(0, 50, 3), (0, 48, 51), (0, 1, 99), (0, 2, 1)], **pool)
        assert log.steps[0].scheduled == [(0, 50), (1, 48)]
        assert log.steps[0].memory["free_unusable"] == 2
        assert [outcome.state for outcome in log.requests] == ["completed", "completed", "rejected", "completed"]
        log = run("vllm_v0", [(0, 50, 3), (0, 50, 49)], **pool)
        assert log.steps[0].scheduled == [(0, 50)]
        assert log.steps[-1].memory["token_state"] == 98

    def test_decodes_do_not_count_against_a_prompt_batch(self) -> None:
        log = run("vllm_v0", [(0, 2, 2), (5, 7, 1)], max_num_batched_tokens=8)
        assert scheduled(log) == [[(0, 2)], [(1, 7)], [(0, 1)]]

    def test_preempted_head_comes_back_as_a_prompt(self) -> None:
        log = run("vllm_v0", [(0, 1, 3), (0, 1, 3)], num_blocks=2, max_model_len=8)
        assert scheduled(log) == [[(0, 1), (1, 1)], [(0, 1)], [(1, 2)], [(0, 1)], [(1, 3)]]
        assert [step.preempted for step in log.steps] == [[], [1], [], [1], []]
        assert log.requests[1].recomputed_tokens == 1 + 2


class TestVllmV1:
    def test_prompts_are_chunked_to_the_budget(self) -> None:
        log = run("vllm_v1", [(0, 6, 2), (0, 3, 1)], num_blocks=8, max_num_batched_tokens=4)
        assert scheduled(log) == [[(0, 4)], [(0, 2), (1, 2)], [(0, 1), (1, 1)]]
        assert log.steps[1].tables == {0: [0, 1], 1: [2]}
        assert log.steps[2].facts == StepFacts(num_seqs=2, total_tokens=2, context_tokens=10, num_decodes=1)

    def test_the_head_needs_room_for_all_it_knows_though_it_takes_a_chunk(self) -> None:
        log = run("vllm_v1", [(0, 4, 1), (0, 9, 1)], num_blocks=3, max_num_batched_tokens=8, max_model_len=12)
        assert scheduled(log) == [[(0, 4)], [(1, 8)], [(1, 1)]]
        assert memory(log.steps[0]) == dict(token_state=4, free_unusable=8)

    def test_need_is_real_so_nobody_is_preempted_before_a_block_runs_out(self) -> None:
        log = run("vllm_v1", [(0, 1, 3), (0, 1, 3)], num_blocks=2, max_model_len=8)
        assert scheduled(log) == [[(0, 1), (1, 1)], [(0, 1), (1, 1)], [(0, 1), (1, 1)]]


@pytest.mark.parametrize("name", ["light", "storm"])
def test_real_vllm_v1_scheduler(name: str) -> None:
    """Every step of the recorded logs of vLLM 0.20.2: rows in order, preempted, finished, queue lengths at the end."""
    path = DECISIONS / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"recorded decisions of vLLM are not beside this checkout: {path}")
    recorded = json.loads(gzip.decompress(path.read_bytes()))
    scenario = recorded["scenario"]
    jobs = [Job(row["add_before_step"] * SECOND, row["prompt"], row["output"]) for row in scenario["requests"]]
    limits = (scenario["max_len"], scenario["max_seqs"], scenario["budget"])
    log = simulate(Setup("vllm_v1", scenario["blocks"] - 1, 16, *limits, lambda facts: SECOND), jobs)
    assert len(log.steps) == len(recorded["log"])
    for step, row in zip(log.steps, recorded["log"], strict=True):
        assert step.start_ns == row["step"] * SECOND
        assert step.scheduled == [(int(request), tokens) for request, tokens in row["scheduled"].items()], row["step"]
        assert sorted(step.preempted) == row["preempted"], row["step"]
        assert step.finished == row["finished"], row["step"]
        assert (step.running - len(step.finished), step.waiting) == (row["running"], row["waiting"]), row["step"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("system", SCHEDULERS)
def test_random_workloads_under_pressure_end_and_conserve(system: str, seed: int) -> None:
    """The model checks its own laws at every step; here totals over the run, on pools where storage is short."""
    rng = random.Random(seed)
    jobs = [Job(rng.randrange(0, 600), rng.randint(0, 30), rng.randint(0, 30)) for _ in range(40)]
    limits = dict(max_num_seqs=rng.choice([None, 2, 5]), max_num_batched_tokens=rng.choice([None, 40, 64]))
    pool = dict(num_blocks=rng.randint(9, 200), block_size=rng.choice([1, 2, 4]), max_model_len=rng.choice([32, 64]))
    changes = pool | limits | dict(step_ns=lambda facts: 3 + facts.total_tokens + facts.context_tokens // 8)
    log = simulate(setup(system, **changes), jobs)
    completed = [request for request, outcome in enumerate(log.requests) if outcome.state == "completed"]
    computed = sum(tokens for step in log.steps for _, tokens in step.scheduled)
    recomputed = sum(outcome.recomputed_tokens for outcome in log.requests)
    assert computed - recomputed == sum(jobs[request].prompt + jobs[request].output - 1 for request in completed)
    assert sorted(request for step in log.steps for request in step.finished) == completed
    assert sum(len(step.preempted) for step in log.steps) == sum(outcome.num_preemptions for outcome in log.requests)
    for before, after in zip(log.steps, log.steps[1:], strict=False):
        assert after.start_ns >= before.start_ns + before.duration_ns
    for request in completed:
        outcome = log.requests[request]
        assert outcome.first_token_ns is not None and outcome.finished_ns is not None
        assert jobs[request].arrival < outcome.first_token_ns <= outcome.finished_ns
