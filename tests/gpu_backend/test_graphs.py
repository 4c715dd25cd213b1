"""Captured steps: padded to buckets they give what exact ones give. The graphs are stand-ins that run the work anew."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gpu_backend import runner
from gpu_backend.attention.sdpa import Sdpa
from gpu_backend.graphs import no_collection
from gpu_backend.inputs import Step
from tests.gpu_backend.doubles import TinyDecoder, executor_of, gpu_executor, on_a_cpu
from tests.harness import SYSTEMS, build, execute, setup
from tests.record.plans import decodes, plan
from tests.reference.records import Job

pytestmark = on_a_cpu


@dataclass(frozen=True)
class Capturable(Sdpa):
    capturable = True


class Pool:
    """Graphs on a CPU."""

    def __init__(self, device: torch.device, generators: tuple[torch.Generator, ...]) -> None:
        self.count = 0

    def capture(self, work: Callable[[], None]) -> Any:
        work()
        return SimpleNamespace(replay=work)


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runner, "load_decoder", TinyDecoder)
    monkeypatch.setattr(runner, "GraphPool", Pool)
    monkeypatch.setattr(runner, "can_capture", lambda device: True)
    monkeypatch.setattr(runner, "_last", None)
    yield
    runner._last = None


@pytest.mark.parametrize("system", SYSTEMS)
def test_buckets_change_no_text(system: str) -> None:
    jobs = [Job(20_000 * row, 1 + 13 * row % 31, 1 + 7 * row % 11) for row in range(12)]
    limits = setup(system, num_blocks=64, block_size=4, max_model_len=64, max_num_seqs=9, max_num_batched_tokens=64)
    texts = []
    for captured in (True, False):
        executor = executor_of(limits, attention=Capturable(), cuda_graphs=captured, keep_tokens=True)
        run = build(limits, jobs, executor=executor)
        execute(run)
        assert bool(run.executor.buckets["decode"]) == captured  # type: ignore[attr-defined]
        texts.append([run.executor.tokens(row) for row in range(len(jobs))])  # type: ignore[attr-defined]
    assert texts[0] == texts[1]


def test_buckets_are_those_of_the_limits() -> None:
    executor = gpu_executor(
        None, num_slots=64, block_size=4, attention=Capturable(), max_num_seqs=3, max_num_batched_tokens=20
    )
    assert executor.buckets == {"decode": (1, 2, 4), "mixed": (16, 32), "samples": (1, 2, 4)}


def test_an_attention_that_reads_back_is_not_captured() -> None:
    executor = gpu_executor(None, num_slots=64, block_size=4, attention=Sdpa())
    assert executor.buckets == {"decode": (), "mixed": (), "samples": ()}


def test_all_passes_read_one_buffer_and_the_largest_is_captured_first() -> None:
    executor = gpu_executor(
        None, num_slots=64, block_size=4, attention=Capturable(), max_num_seqs=2, max_num_batched_tokens=40
    )
    made = executor._runner
    shapes = list(made._passes)
    assert [(shape.tokens, shape.longs > 0) for shape in shapes] == [
        (48, True),
        (32, True),
        (16, True),
        (2, False),
        (1, False),
    ]
    assert list(made._heads) == [2, 1]
    assert len({made.buffers.take(shape, made.width).device.data_ptr() for shape in shapes}) == 1
    other = shapes[0]._replace(tokens=17)
    assert made.buffers.take(other, made.width).device.data_ptr() != made.buffers.take(shapes[0], made.width)


def test_a_step_beyond_the_buckets_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = SimpleNamespace(draw=lambda plan, repeats: np.zeros(0, np.int64))
    tables = {row: [5 * row + at for at in range(5)] for row in range(3)}
    steps: list[Step] = []
    launch = runner.ModelRunner.run

    def run(self: runner.ModelRunner, step: Step) -> Any:
        steps.append(step)
        return launch(self, step)

    monkeypatch.setattr(runner.ModelRunner, "run", run)
    texts = []
    for cuda_graphs in (True, False):
        executor = gpu_executor(
            outcomes,  # type: ignore[arg-type]
            num_slots=64,
            block_size=4,
            attention=Capturable(),
            max_num_seqs=2,
            max_num_batched_tokens=16,
            keep_tokens=True,
            cuda_graphs=cuda_graphs,
        )
        executor.execute(plan([(row, 0, 17, 1) for row in range(3)], tables), 0, 1, 1)
        texts.append([executor.tokens(row) for row in range(3)])
    assert executor.buckets["mixed"] == () and [step.captured for step in steps] == [False, False]
    assert steps[0].shape.tokens == 51
    assert [len(text) for text in texts[0]] == [1, 1, 1]
    assert texts[0] == texts[1]


def test_capturing_draws_nothing_from_the_seed() -> None:
    """The first run over fresh graphs is the second over the same ones."""
    outcomes = SimpleNamespace(draw=lambda plan, repeats: np.zeros(0, np.int64))
    texts, made = [], []
    for _ in range(2):
        executor = gpu_executor(
            outcomes,  # type: ignore[arg-type]
            num_slots=64,
            block_size=4,
            attention=Capturable(),
            max_num_seqs=2,
            max_num_batched_tokens=16,
            keep_tokens=True,
            temperature=1.0,
        )
        executor.execute(plan([(0, 0, 9, 1)], {0: [0, 1, 2, 3]}), 0, 1, 1)
        for held in range(9, 15):
            executor.execute(decodes(held, tables={0: [0, 1, 2, 3]}), 0, 1, 1)
        texts.append(executor.tokens(0))
        made.append(executor._runner)
    assert made[0] is made[1]
    assert texts[0] == texts[1] and len(texts[0]) == 7


def test_nothing_is_collected_while_capturing() -> None:
    with no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
