"""The loop: arrivals, schedule, step, results, one step at a time on an integer clock."""

from __future__ import annotations

from dataclasses import replace

from .accounting import split
from .pools import BuddyPool, Cache, PagedPool, next_pow2
from .records import Job, Log, Outcome, Seq, Setup, Step, StepFacts
from .schedulers import SCHEDULERS, Plan, Scheduler, watermark_blocks

CHUNKED = ("vllm_v1",)
WITHOUT_TOKEN_BUDGET = ("fastertransformer",)


def simulate(setup: Setup, jobs: list[Job]) -> Log:
    """Run all jobs to their end.

    Raises:
        KeyError: unknown system.
        AssertionError: a conservation law broke, or nothing can run although requests wait.
    """
    scheduler, cache, longest, longest_reason = build(setup)
    log = Log(requests=[Outcome() for _ in jobs])
    arrivals = sorted(range(len(jobs)), key=lambda request: (jobs[request].arrival, request))
    now = 0
    while arrivals or scheduler.waiting or scheduler.running:
        if not scheduler.waiting and not scheduler.running:
            now = max(now, jobs[arrivals[0]].arrival)
        while arrivals and jobs[arrivals[0]].arrival <= now:
            request = arrivals.pop(0)
            job, outcome = jobs[request], log.requests[request]
            if job.prompt < 1 or job.output < 1:
                outcome.state, outcome.reason = "rejected", "empty prompt or output"
            elif job.prompt + job.output > longest:
                outcome.state, outcome.reason = "rejected", longest_reason
            else:
                scheduler.add(Seq(request, job.prompt, job.output))
        if scheduler.waiting or scheduler.running:
            now = run_step(setup, scheduler, cache, log, jobs, now)
    assert sorted(cache.pool.free_blocks()) == list(range(setup.num_blocks)), "memory is left behind"
    assert all(outcome.state in ("completed", "rejected") for outcome in log.requests)
    return log


def build(setup: Setup) -> tuple[Scheduler, Cache, int, str]:
    """Scheduler and empty cache, the longest prompt + output that is taken, and the name of the limit that sets it."""
    scheduler_class = SCHEDULERS[setup.system]
    size = setup.block_size
    pool: PagedPool | BuddyPool = PagedPool(setup.num_blocks)
    if scheduler_class.reserves:
        blocks_per_model_len = -(-setup.max_model_len // size)
        pool = BuddyPool(setup.num_blocks, next_pow2(blocks_per_model_len))
    pool_tokens = (pool.largest() - watermark_blocks(setup)) * size
    limits = [(setup.max_model_len, "max_model_len"), (pool_tokens, "pool")]
    budget = setup.max_num_batched_tokens
    if budget is not None and setup.system not in CHUNKED + WITHOUT_TOKEN_BUDGET:
        limits.append((budget, "max_num_batched_tokens"))
    longest, reason = min(limits)
    if scheduler_class.reserves:
        # lowered to what the empty pool holds: a reservation beyond it would wait for ever
        setup = replace(setup, max_model_len=min(setup.max_model_len, pool_tokens))
    cache = Cache(pool, setup.num_blocks, size)
    return scheduler_class(setup, cache), cache, longest, reason


def run_step(setup: Setup, scheduler: Scheduler, cache: Cache, log: Log, jobs: list[Job], now: int) -> int:
    """Schedule, write, account, emit; returns the end of the step."""
    plan = scheduler.schedule()
    assert plan.rows, f"nothing runs although {len(scheduler.waiting)} wait and {len(scheduler.running)} run"
    in_arrival_order(scheduler, jobs)
    for seq in plan.preempted:
        log.requests[seq.request].num_preemptions += 1
    facts = write_tokens(plan, cache, log)
    cache.check(scheduler.running)
    memory = split(scheduler, cache, preempted=bool(plan.preempted))
    duration = setup.step_ns(facts)
    assert duration > 0, "a step takes time"
    step = Step(
        step=len(log.steps),
        start_ns=now,
        duration_ns=duration,
        facts=facts,
        scheduled=[(seq.request, tokens) for seq, tokens in plan.rows],
        preempted=[seq.request for seq in plan.preempted],
        finished=[],
        waiting=len(scheduler.waiting),
        running=len(scheduler.running),
        memory=memory,
        tables={seq.request: list(seq.table) for seq in scheduler.running},
    )
    log.steps.append(step)
    now += duration
    step.finished = emit_tokens(plan, scheduler, log, now)
    return now


def write_tokens(plan: Plan, cache: Cache, log: Log) -> StepFacts:
    """Store the KV of every token of the plan, one by one."""
    total_tokens = context_tokens = num_decodes = 0
    for seq, tokens in plan.rows:
        if tokens == 1 and seq.computed >= seq.prompt:
            num_decodes += 1
        for _ in range(tokens):
            if seq.computed < seq.most_computed:
                log.requests[seq.request].recomputed_tokens += 1
            cache.write(seq)
            total_tokens += 1
        seq.most_computed = max(seq.most_computed, seq.computed)
        context_tokens += seq.computed
    return StepFacts(len(plan.rows), total_tokens, context_tokens, num_decodes)


def emit_tokens(plan: Plan, scheduler: Scheduler, log: Log, now: int) -> list[int]:
    """A token for every row that has computed all it knows; returns the requests delivered at this instant."""
    done = []
    for seq, _ in plan.rows:
        if seq.computed < seq.known:
            continue
        seq.emitted += 1
        if seq.emitted == 1:
            log.requests[seq.request].first_token_ns = now
        if seq.emitted == seq.output:
            assert seq.computed == seq.prompt + seq.output - 1
            done.append(seq)
    delivered = scheduler.finish(done)
    for seq in delivered:
        outcome = log.requests[seq.request]
        assert seq.emitted == seq.output and outcome.state == "pending", seq
        outcome.state, outcome.finished_ns = "completed", now
    return sorted(seq.request for seq in delivered)


def in_arrival_order(scheduler: Scheduler, jobs: list[Job]) -> None:
    """FCFS without skipping: whoever runs came before whoever waits, and both queues are in order of arrival."""
    order = [(jobs[seq.request].arrival, seq.request) for seq in scheduler.running + scheduler.waiting]
    assert order == sorted(order), "somebody overtook"
