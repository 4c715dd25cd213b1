"""Faults found in other simulators (numbers as in the list of them): each is done right here."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from kvsim.config import build as build_config
from kvsim.config import compose
from kvsim.cost.roofline import RooflineCost
from kvsim.plan import StepPlan
from kvsim.request import Status
from kvsim.results import RunFolder
from kvsim.specs import GIB, ModelSpec, num_kv_blocks
from tests.harness import (
    PREEMPTING,
    ROOT,
    Log,
    build,
    even,
    every_system,
    execute,
    setup,
    sharegpt_like,
    simulate,
    tight,
)
from tests.reference.records import Job

preempting = pytest.mark.parametrize("system", PREEMPTING)


def load(group: str, name: str, **changes: Any) -> Any:
    return instantiate(OmegaConf.merge(OmegaConf.load(ROOT / "conf" / group / f"{name}.yaml"), changes))


def assert_only_rejected(log: Log, misfit: int, *words: str) -> None:
    """`misfit` alone was rejected, with a reason that has these words; the others completed."""
    assert log.finished(Status.REJECTED) == [misfit]
    assert sorted([misfit, *log.finished()]) == sorted(log.requests)
    reason = log.requests[misfit].reason
    assert all(word in reason for word in words), reason
    assert "\n" not in reason
    assert (log.summary["rejected"], log.summary["completed"]) == (1, len(log.requests) - 1)


@every_system
def test_fault_1_a_prompt_larger_than_the_pool_is_rejected_by_name_and_the_others_complete(system: str) -> None:
    jobs = [Job(0, 20, 10), Job(500, 65, 1), Job(1000, 20, 10), Job(1000, 20, 10)]
    log = simulate(setup(system, num_blocks=16, max_model_len=128), jobs)
    assert_only_rejected(log, 1, "prompt + output 66", "64")


@every_system
def test_fault_2_a_prompt_that_fits_with_an_answer_that_never_will_is_rejected_on_arrival(system: str) -> None:
    jobs = [Job(0, 20, 10), Job(500, 40, 30), Job(1000, 20, 10)]
    log = simulate(setup(system, num_blocks=16, max_model_len=128), jobs)
    assert_only_rejected(log, 1, "prompt + output 70", "64")
    assert all(request_id != 1 for step in log.steps for request_id, _ in step.scheduled)
    assert log.summary["num_preemptions"] == 0
    assert len(log.steps) <= 20 + 2
    fitting = simulate(setup(system, num_blocks=16, max_model_len=128), [Job(0, 40, 24)])
    assert fitting.finished() == [0]


@pytest.mark.parametrize("system", ["orca_max", "orca_pow2", "orca_oracle", "vllm_paper", "vllm_v0"])
def test_fault_3_a_prompt_longer_than_the_budget_is_rejected_by_name_with_the_remedy(system: str) -> None:
    jobs = [Job(0, 20, 10), Job(500, 33, 5), Job(1000, 20, 10)]
    log = simulate(setup(system, max_num_batched_tokens=32), jobs)
    assert_only_rejected(log, 1, "38", "max_num_batched_tokens 32", "chunks")


def test_fault_3_a_prompt_longer_than_the_budget_goes_in_chunks_where_there_are_some() -> None:
    log = simulate(setup("vllm_v1", max_num_batched_tokens=8), [Job(0, 33, 5)])
    assert [tokens for step in log.steps for _, tokens in step.scheduled] == [8, 8, 8, 8, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("max_num_seqs", [None, 3])
def test_fault_4_static_batches_give_all_their_blocks_back(max_num_seqs: int | None) -> None:
    jobs = [Job(700 * row, 3 + row % 20, 1 + 7 * row % 30) for row in range(60)]
    run = build(setup("fastertransformer", max_num_seqs=max_num_seqs), jobs, fast_forward=False)
    log = execute(run)
    assert len(log.finished()) == 60
    usage = run.allocator.usage()
    assert (usage.free, usage.held, usage.resident, dict(usage.grants)) == (usage.total, 0, 0, {})
    run.allocator.check_integrity()
    batches = [step for before, step in pairwise(log.steps) if before.finished]
    assert len(batches) > 5
    assert all(step.tables is not None and set(step.tables) == {row for row, _ in step.scheduled} for step in batches)


@preempting
def test_fault_5_time_per_token_after_a_preemption_is_that_of_the_tokens(system: str) -> None:
    """Generated tokens stay generated, however often a request restarts; its stalls count."""
    limits, jobs = tight(system, seed=5, count=80)
    log = simulate(limits, jobs)
    instants: dict[int, list[int]] = {request_id: [] for request_id in log.requests}
    for step in log.steps:
        for request_id in step.emitted:
            instants[request_id].append(step.end_ns)
    restarted = [request_id for request_id, outcome in log.requests.items() if outcome.num_preemptions]
    assert len(restarted) > 3
    for request_id, at in instants.items():
        outcome = log.requests[request_id]
        assert len(at) == jobs[request_id].output
        assert (outcome.first_token_ns, outcome.finished_ns) == (at[0], at[-1])
    several = [at for at in instants.values() if len(at) > 1]
    tpot = np.array([(at[-1] - at[0]) / (len(at) - 1) for at in several]) / 1e6
    gaps = np.concatenate([np.diff(at) for at in several]) / 1e6
    for name, sample in (("tpot", tpot), ("itl", gaps)):
        assert log.summary[f"mean_{name}_ms"] == pytest.approx(sample.mean())
        assert log.summary[f"p99_{name}_ms"] == pytest.approx(np.percentile(sample, 99))
        assert log.summary[f"std_{name}_ms"] == pytest.approx(sample.std())


@pytest.mark.parametrize("option", ["roofline", "paper_a100"])
def test_fault_6_the_cost_model_has_an_answer_for_every_plan(option: str) -> None:
    make = load("cost", option)
    model = make(model=load("model", "opt-13b"), hardware=load("hardware", "a100-40gb"))
    rng = np.random.default_rng(0)
    for scale in (1, 10, 1000, 10**5, 10**7):
        for rows in (1, 3, 257, 20_000):
            for decodes in {0, rows // 2, rows}:
                assert_sane(model, rng.integers(1, scale, rows, endpoint=True), decodes)


def assert_sane(model: RooflineCost, tokens: Any, decodes: int) -> None:
    """A step of decodes, then prompts, each at the end of a context of these lengths, lasts, and not for ever."""
    new = tokens.copy()
    new[:decodes] = 1
    starts = tokens - new
    columns = (np.arange(len(new)), starts, new, starts, tokens, np.ones_like(new))
    plan = StepPlan(0, *columns, {}, int(new.sum()), int(tokens.sum()), decodes)
    assert 0 < int(model.decode_run(plan, 1)[0]) < 1 << 62
    if decodes == len(new):
        durations = model.decode_run(plan, 50)
        assert durations[0] == model.decode_run(plan, 1)[0]
        assert (np.diff(durations) >= 0).all()


def test_fault_7_capacity_counts_embeddings_and_head() -> None:
    model: ModelSpec = load("model", "llama-3-8b")
    tables = 2 * model.vocab_size * model.hidden_size * model.dtype_bytes
    assert tables / GIB == pytest.approx(1.957, abs=0.001)
    assert model.num_parameters == 8_030_261_248  # of the published checkpoint
    card = load("hardware", "a100-40gb")
    block_bytes = 16 * model.kv_bytes_per_token
    blocks = num_kv_blocks(model, card, 16, 2048)
    assert block_bytes * blocks + model.weight_bytes < card.memory_bytes * card.memory_utilization
    headless = num_kv_blocks(replace(model, tied_embeddings=True), card, 16, 2048)
    assert headless - blocks == pytest.approx(tables / 2 / block_bytes, abs=1)


def test_fault_8_the_chunk_budget_is_spent_once() -> None:
    log = simulate(setup("vllm_v1", num_blocks=2000, max_num_batched_tokens=512), [Job(0, 60, 4)] * 400)
    queued = [step for step in log.steps if step.waiting]
    assert len(queued) > 20
    assert {sum(tokens for _, tokens in step.scheduled) for step in queued} == {512}


@preempting
@pytest.mark.parametrize("growing", [False, True], ids=["oversubscribed", "growing"])
def test_fault_10_an_oversubscribed_pool_comes_to_an_end_and_time_moves(system: str, growing: bool) -> None:
    """All together need one and a half times the pool, or ten times it where short prompts have long answers."""
    jobs = [Job(0, 2, 58)] * 43 if growing else [Job(0, 24, 24)] * 8
    limits = setup(system, num_blocks=64, step_ns=even)
    log = simulate(limits, jobs)
    assert len(log.finished()) == len(jobs)
    assert int(log.summary["num_preemptions"] or 0) > 0
    assert all(after.start_ns == before.end_ns for before, after in pairwise(log.steps))
    # every step brings somebody on: far fewer than one request after the other would take
    assert len(log.steps) < sum(job.output for job in jobs)
    assert all(step.emitted for step in log.steps)


@preempting
def test_fault_10_three_who_can_never_run_together_do_not_push_each_other_out_for_ever(system: str) -> None:
    log = simulate(setup(system, num_blocks=16), [Job(0, 4, 60), Job(0, 4, 60), Job(0, 4, 60)])
    assert len(log.finished()) == 3
    assert len(log.steps) < 180
    assert max(outcome.num_preemptions for outcome in log.requests.values()) < 40


@every_system
def test_fault_11_tokens_put_out_are_the_tokens_asked_for(system: str) -> None:
    limits, jobs = tight(system, seed=5, count=80)
    log = simulate(limits, jobs)
    asked = sum(job.output for job in jobs)
    assert log.summary["completed"] == len(jobs)
    assert log.summary["total_output_tokens"] == asked == sum(len(step.emitted) for step in log.steps)
    assert log.summary["total_input_tokens"] == sum(job.prompt for job in jobs)
    end_s = max(outcome.finished_ns or 0 for outcome in log.requests.values()) / 1e9
    assert log.summary["output_throughput"] == pytest.approx(asked / end_s)
    computed = sum(tokens for step in log.steps for _, tokens in step.scheduled)
    recomputed = log.summary["recomputed_tokens"]
    assert computed == sum(job.prompt + job.output - 1 for job in jobs) + int(recomputed or 0)
    assert bool(recomputed) == (system in PREEMPTING)


@every_system
def test_fault_14_overload_is_reported_as_such(system: str) -> None:
    loaded = simulate(*sharegpt_like(system, seed=1, count=150, gap_ns=20_000_000))
    assert loaded.summary["saturated"] is True
    calm = simulate(*sharegpt_like(system, seed=1, count=60, gap_ns=20_000_000_000))
    assert calm.summary["saturated"] is False


def test_fault_14_the_backlog_is_in_the_tables(tmp_path: Path) -> None:
    run = build_config(compose(["system=orca_max", "rate=5", "num_requests=200"]))
    with RunFolder(tmp_path) as folder:
        run.execute(folder)
    [summary] = json.loads((tmp_path / "summary.json").read_text())
    assert summary["saturated"] is True
    waiting = pq.read_table(tmp_path / "steps.parquet")["num_waiting"].to_numpy()
    assert waiting.max() > 50
