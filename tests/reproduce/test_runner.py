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
        mean = runner.mean("mean_batch_size", *SHORT, seeds=(0, 1))
        assert runner.mean("completed", *SHORT, seeds=(0, 1)) == 20
        both = [simulate((*SHORT, f"seed={seed}")) for seed in (0, 1)]
        assert "system" not in both[0]
        sizes = [summary["mean_batch_size"] for summary in both]
        assert mean == sum(sizes) / 2
        assert runner.map(lambda seed: runner.mean("mean_batch_size", *SHORT, seeds=(seed,)), (1, 0)) == sizes[::-1]
        with pytest.raises(ConfigError, match="rate=-1"):
            runner.mean("completed", "rate=-1", seeds=(0,))
    lines = terminal.getvalue().split("\r\x1b[K")
    assert len([line for line in lines if line]) == 3
    assert lines[1].startswith("fig0: 1 of 2 runs, ")
    assert lines[-1] == ""


def test_metric_that_a_seed_leaves_undefined_is_named() -> None:
    # at 0.05 req/s some seeds have no arrival in 20 s
    quiet = ("system=vllm_paper", "cost=constant", "rate=0.05", "duration=20")
    with Runner(1) as runner:
        seeds = range(4)
        defined = ["mean_ttft_ms" in simulate((*quiet, f"seed={seed}")) for seed in seeds]
        assert 0 < sum(defined) < 4
        message = rf"system=vllm_paper .* rate=0.05 .*: mean_ttft_ms is undefined under {4 - sum(defined)} of 4 seeds"
        with pytest.raises(ConfigError, match=message):
            runner.mean("mean_ttft_ms", *quiet, seeds=seeds)
        with pytest.raises(ConfigError, match="undefined under 1 of 1 seeds"):
            runner.mean("mean_ttft_ms", *quiet, seeds=[defined.index(False)])


def test_killed_process_is_one_error() -> None:
    with Runner(1) as runner:
        runner.mean("completed", *SHORT, seeds=(0,))
        (process,) = runner._pool._processes.values()
        process.kill()
        for _ in range(2):  # the pool stays broken
            with pytest.raises(ChildProcessError, match=r"simulates system=vllm_paper .* was killed; .* fewer --jobs"):
                runner.mean("completed", *SHORT, seeds=(1,))


def test_an_error_in_one_of_many_stops_all() -> None:
    def fail(item: int) -> None:
        raise ConfigError(f"item {item}")

    with Runner(1) as runner, pytest.raises(ConfigError, match="item 0"):
        runner.map(fail, range(3))
