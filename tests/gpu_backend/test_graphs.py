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
from gpu_backend.kernels.prefill_attention import query_tile
from tests.gpu_backend.doubles import TINY, TinyDecoder, executor_of, gpu_executor
from tests.harness import SYSTEMS, build, execute, setup
from tests.record.plans import plan
from tests.reference.records import Job


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
    assert executor.buckets == {"decode": (1, 2, 3), "mixed": (16, 20), "samples": (1, 2, 3)}


def test_an_attention_that_reads_back_is_not_captured() -> None:
    executor = gpu_executor(None, num_slots=64, block_size=4, attention=Sdpa())
    assert executor.buckets == {"decode": (), "mixed": (), "samples": ()}


def test_what_is_captured_last_runs_over_the_smallest_buffers() -> None:
    """Passes share one buffer, so the largest comes first and none moves it."""
    executor = gpu_executor(
        None, num_slots=64, block_size=4, attention=Capturable(), max_num_seqs=2, max_num_batched_tokens=40
    )
    buffers = executor._runner.buffers
    tile = query_tile(TINY.num_heads // TINY.num_kv_heads)
    addresses = set()
    for shape in executor._runner._passes:
        packed = buffers.take(shape, executor._runner.width)
        assert shape.tiles == 0 or shape.tiles == shape.tokens // tile + shape.longs
        addresses.add(packed.device.data_ptr())
    assert len(addresses) == 1


def test_a_step_beyond_the_buckets_is_exact() -> None:
    outcomes = SimpleNamespace(draw=lambda plan, repeats: np.zeros(0, np.int64))
    executor = gpu_executor(
        outcomes,  # type: ignore[arg-type]
        num_slots=64,
        block_size=4,
        attention=Capturable(),
        max_num_seqs=2,
        max_num_batched_tokens=16,
        keep_tokens=True,
    )
    tables = {row: [5 * row + at for at in range(5)] for row in range(3)}
    executor.execute(plan([(row, 0, 17, 1) for row in range(3)], tables), 0, 1, 1)
    assert [len(executor.tokens(row)) for row in range(3)] == [1, 1, 1]


def test_nothing_is_collected_while_capturing() -> None:
    with no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
