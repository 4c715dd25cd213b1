"""Runs in processes."""

from __future__ import annotations

import io

import pytest

from kvsim.errors import ConfigError
from kvsim.reproduce.runner import Runner, simulate

SHORT = ("system=vllm_paper", "cost=constant", "rate=5", "num_requests=20")


def test_means_over_seeds_each_run_once() -> None:
    terminal = io.StringIO()
    with Runner(1, "fig0", terminal) as runner:
        mean = runner.mean(*SHORT, seeds=(0, 1))
        assert runner.map(lambda seed: runner.mean(*SHORT, seeds=(seed,)), (1, 0)) == [
            simulate((*SHORT, "seed=1")),
            simulate((*SHORT, "seed=0")),
        ]
        with pytest.raises(ConfigError, match="rate=-1"):
            runner.mean("rate=-1", seeds=(0,))
    assert mean["completed"] == 20
    both = [simulate((*SHORT, f"seed={seed}"))["mean_batch_size"] for seed in (0, 1)]
    assert mean["mean_batch_size"] == sum(both) / 2
    assert "system" not in mean
    lines = terminal.getvalue().split("\r\x1b[K")
    assert len([line for line in lines if line]) == 3
    assert lines[1].startswith("fig0: 1 of 2 runs, ")
    assert lines[-1] == ""


def test_an_error_in_one_of_many_stops_all() -> None:
    def fail(item: int) -> None:
        raise ConfigError(f"item {item}")

    with Runner(1) as runner, pytest.raises(ConfigError, match="item 0"):
        runner.map(fail, range(3))
