"""INV-oracle: nothing that decides can reach how long an answer will be, but for the rules that say they do."""

from __future__ import annotations

import gc
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

import kvsim
from kvsim.config import build as build_config
from kvsim.config import compose
from kvsim.executor import SimExecutor
from kvsim.plan import IntArray, PlanRow, PoolUsage, StepPlan
from kvsim.protocols import CostModel
from kvsim.request import Request, Sequence
from kvsim.run import Run
from kvsim.sched.fcfs import FCFSScheduler
from kvsim.workload.outcomes import Outcomes
from tests.harness import ORACLES, SYSTEMS, Log, StepRecord, build, execute, setup, simulate, tight
from tests.reference.records import Job, Setup

BLIND = tuple(system for system in SYSTEMS if system not in ORACLES)


class TestWhoDeclaresIt:
    def test_inv_oracle_list_is_pinned(self) -> None:
        names = [module.name for module in pkgutil.walk_packages(kvsim.__path__, "kvsim.")]
        modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
        classes = {item for module in modules for item in vars(module).values() if inspect.isclass(item)}
        using = {item.__qualname__ for item in classes if getattr(item, "uses_oracle", False)}
        assert using == {"ReserveOracle", "ReservePow2"}
        takers = {item.__qualname__ for item in classes if "oracle" in _parameters(item)}
        assert takers == using

    @pytest.mark.parametrize("record", [Request, Sequence, StepPlan, PlanRow, PoolUsage])
    def test_inv_oracle_records_have_no_such_field(self, record: Any) -> None:
        names = record._fields if hasattr(record, "_fields") else [field.name for field in fields(record)]
        names = [*names, *(name for name in vars(record) if not name.startswith("_"))]
        hints = ("output", "outcome", "oracle", "final", "remaining", "left", "eos", "stop")
        assert not [name for name in names if any(hint in name for hint in hints)]


def _parameters(item: type) -> list[str]:
    try:
        return list(inspect.signature(item).parameters)
    except ValueError:
        return []


def reachable(*roots: object) -> Iterator[object]:
    """Every object that can be reached from `roots`: attributes, containers, closures, arrays' bases.

    Classes and modules are the same for all runs and hold nothing of one.
    """
    stack, seen = list(roots), {}
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, type | ModuleType):
            continue
        seen[id(item)] = item
        yield item
        if isinstance(item, FunctionType):
            stack += [item.__closure__, item.__defaults__, item.__kwdefaults__]
        elif isinstance(item, np.ndarray):
            stack.append(item.base)
        else:
            stack += gc.get_referents(item)


def leaks(outcomes: Outcomes, *roots: object) -> bool:
    """Whether `outcomes`, or the memory of one of its arrays, can be reached from `roots`."""
    secrets = [item for item in vars(outcomes).values() if isinstance(item, np.ndarray)]
    assert secrets
    for item in reachable(*roots):
        if item is outcomes or (isinstance(item, np.ndarray) and any(np.shares_memory(item, own) for own in secrets)):
            return True
    return False


class Watch:
    """Looks for a leak while the run is under way."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.leaked = False
        self.looks = 0

    def begin(self, plan: StepPlan, now: int, durations: IntArray) -> None:
        if plan.step % 50 == 0:
            self.looks += 1
            self.leaked |= leaks(self.run.outcomes, self.run.scheduler, self.run.allocator, plan)

    def close(self, now: int) -> None:
        pass

    def end(self, ended: list[Sequence], now: int) -> None:
        pass


class TestReach:
    @pytest.mark.parametrize("system", SYSTEMS)
    def test_inv_oracle_built_policies_cannot_reach_the_outcomes(self, system: str) -> None:
        run = build_config(compose([f"system={system}", "rate=1", "num_requests=20"]))
        assert leaks(run.outcomes, run.scheduler, run.allocator) == (system in ORACLES)
        assert not leaks(run.outcomes, run.workload)
        assert leaks(run.outcomes, run.executor)

    @pytest.mark.parametrize("system", SYSTEMS)
    def test_inv_oracle_running_policies_cannot_reach_the_outcomes(self, system: str) -> None:
        limits, jobs = tight(system, seed=5)
        run = build(limits, jobs, fast_forward=False)
        watch = Watch(run)
        execute(run, watch)
        assert watch.looks > 5
        assert watch.leaked == (system in ORACLES)

    def test_inv_oracle_breach_hidden_places_are_looked_into(self) -> None:
        outcomes = Outcomes()
        keeper = {"deep": [partial(print, lambda: outcomes)]}
        for hidden in (keeper, outcomes.draw, outcomes._left[3:7], (row for row in [outcomes]), {7: {outcomes}}):
            run = build(setup("vllm_v1"), [], outcomes=outcomes)
            assert not leaks(outcomes, run.scheduler)
            run.scheduler.hint = hidden  # type: ignore[attr-defined]
            assert leaks(outcomes, run.scheduler), hidden


class TestDecisions:
    """Runs that differ only in how long some answers become decide alike until the first of these ends."""

    @staticmethod
    def pair(system: str, fast_forward: bool = False, **parts: Any) -> list[list[StepRecord]]:
        """The steps of two such runs before the first in which an answer ends that goes on in the other."""
        logs = [
            simulate(setup_of(system), jobs, fast_forward=fast_forward, **parts) for jobs in (jobs_of(0), jobs_of(1))
        ]
        horizon = min(step for log in logs for request_id, step in ends(log).items() if request_id % 3 == 0)
        assert horizon > 10
        # a jump may end elsewhere; what is decided may not change
        return [[step._replace(tables=None) for step in log.steps[:horizon]] for log in logs]

    @pytest.mark.parametrize("fast_forward", [True, False], ids=["jumping", "stepping"])
    @pytest.mark.parametrize("system", BLIND)
    def test_inv_oracle_decisions_are_alike_until_an_answer_ends(self, system: str, fast_forward: bool) -> None:
        first, second = self.pair(system, fast_forward)
        assert first == second

    @pytest.mark.parametrize("system", ORACLES)
    def test_inv_oracle_rules_that_declare_it_decide_otherwise(self, system: str) -> None:
        first, second = self.pair(system)
        assert first != second

    def test_inv_oracle_breach_a_scheduler_that_peeks(self) -> None:
        outcomes: list[Outcomes] = []

        class Peeking(FCFSScheduler):
            """Shortest answer first."""

            def schedule(self, now: int) -> StepPlan:
                known = outcomes[-1].num_output_tokens
                self.waiting = type(self.waiting)(sorted(self.waiting, key=lambda seq: known(seq.request.request_id)))
                return super().schedule(now)

        def tell(cost: CostModel, told: Outcomes) -> SimExecutor:
            outcomes.append(told)
            return SimExecutor(cost, told)

        first, second = self.pair("orca_max", scheduler=partial(Peeking, prefill_first=False), executor=tell)
        assert first != second


def setup_of(system: str) -> Setup:
    return setup(system, num_blocks=96, max_model_len=96)


def jobs_of(version: int) -> list[Job]:
    """Forty requests for a pool that holds a few; every third one's answer is wildly different in version 1."""
    outputs = [(60 if version == 0 else 30 if row < 18 else 2) if row % 3 == 0 else 5 + row % 9 for row in range(40)]
    return [Job(900 * row, 3 + 7 * row % 23, output) for row, output in enumerate(outputs)]


def ends(log: Log) -> dict[int, int]:
    """Step in which each request drew its last token."""
    return {request_id: step.step for step in log.steps for request_id in step.emitted}
