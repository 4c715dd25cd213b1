"""`build`: the pool, the longest sequence, and what goes to whom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from kvsim.config import build, compose
from kvsim.errors import ConfigError
from kvsim.latency import NO_SLO, SLO
from kvsim.results import RunFolder
from kvsim.run import Run
from tests.harness import ROOT


def made(*overrides: str) -> Run:
    return build(compose(["rate=1", *overrides]))


@pytest.mark.parametrize(
    ("overrides", "slots"),
    [
        (["kv.num_slots=15728"], 15728),
        (["kv.num_slots=15743"], 15728),
        (["kv.num_blocks=10", "kv.block_size=32"], 320),
        (["system=vllm_paper"], 15728),  # the paper's Table 1: 15.7K
        (["system=orca_max"], 15728),  # no cap on a step: the same pool
    ],
)
def test_pool(overrides: list[str], slots: int) -> None:
    assert made(*overrides).pool_tokens == slots


@pytest.mark.parametrize(
    ("overrides", "length"),
    [
        (["system=vllm_v1"], 2048),
        (["system=vllm_v1", "scheduler.max_model_len=1000"], 1000),
        (["system=vllm_v1", "kv.num_blocks=40"], 640),
        (["system=vllm_v1", "scheduler.max_num_batched_tokens=100"], 2048),
        (["system=vllm_paper", "scheduler.max_num_batched_tokens=100"], 100),
        (["system=vllm_v0", "kv.num_blocks=100"], 1584),  # the watermark stays free
        (["system=orca_max", "kv.num_blocks=100"], 1024),
        (["system=orca_max", "scheduler.max_num_batched_tokens=100"], 96),
        (["system=vllm_paper", "kv.num_blocks=40", "scheduler.max_num_batched_tokens=100"], 100),
    ],
)
def test_longest_sequence(overrides: list[str], length: int, caplog: pytest.LogCaptureFixture) -> None:
    run = made(*overrides)
    assert run.scheduler.max_model_len == length
    lowered = [record for record in caplog.records if "lowered" in record.getMessage()]
    asked = 1000 if any("max_model_len" in override for override in overrides) else 2048
    assert len(lowered) == (length < asked)


@pytest.mark.parametrize("length", ["1", "2049", "0.5", "true", "text"])
def test_a_length_out_of_range_is_refused(length: str) -> None:
    with pytest.raises(ConfigError, match="scheduler.max_model_len="):
        made(f"scheduler.max_model_len={length}")


def test_a_buddy_pool_wants_whole_blocks() -> None:
    with pytest.raises(ConfigError, match="must divide max_model_len=1000"):
        made("system=orca_max", "scheduler.max_model_len=1000")


def test_seconds_become_nanoseconds() -> None:
    run = made("duration=0.3", "warmup=0.1", "engine.drain=false")
    assert (run.duration_ns, run.warmup_ns, run.drain) == (300_000_000, 100_000_000, False)


def test_limits_reach_the_summary() -> None:
    assert made().slo == NO_SLO
    run = made("num_requests=30", "slo.ttft_ms=1e6", "slo.e2el_ms=1_000_000_000")
    assert run.slo == SLO(ttft_ms=1e6, e2el_ms=1e9)
    summary = run.execute()
    assert summary["request_goodput"] == summary["request_throughput"]
    assert made("num_requests=30", "slo.e2el_ms=0.001").execute()["request_goodput"] == 0


@pytest.mark.parametrize("name", ["ttft_ms", "tpot_ms", "e2el_ms"])
@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf"])
def test_a_limit_out_of_range_is_refused(name: str, limit: str) -> None:
    with pytest.raises(ConfigError, match=rf"^slo\.{name}={limit}: must be .* above 0; give for example 500$"):
        made(f"slo.{name}={limit}")


@pytest.mark.parametrize(
    "override",
    ["+foo=1", "+kv.foo=1", "+engine.foo=1", "kv.num_blocks=1.5", "seed=x", "+slo.itl_ms=1", "slo.ttft_ms=true"],
)
def test_keys_and_types_are_closed(override: str) -> None:
    with pytest.raises((HydraException, OmegaConfBaseException)):
        made(override)


@pytest.mark.parametrize("module", ["torch", "triton"])
def test_a_gpu_package_that_is_missing_is_named(module: str) -> None:
    script = f"""
import sys
sys.modules[{module!r}] = None
from kvsim.config import build, compose
build(compose(["rate=1", "executor=gpu", "executor.device=cpu"]))
"""
    reply = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    last = reply.stderr.splitlines()[-1]
    assert f"ConfigError: executor: the Python package {module} is not installed; pip install" in last


def test_the_same_configuration_gives_the_same_summary() -> None:
    first, again = (made("num_requests=30", "system=orca_pow2").execute() for _ in range(2))
    assert first == again
    labels = [
        "system",
        "model",
        "hardware",
        "workload",
        "cost",
        "executor",
        "rate",
        "seed",
        "kv_num_blocks",
        "kv_pool_gib",
    ]
    assert list(first)[: len(labels)] == labels


@pytest.mark.parametrize(
    ("override", "cost", "executor"),
    [("executor=sim", "roofline", "sim"), ("executor=memory_check", "roofline", "memory_check")],
)
def test_predicted_steps_name_their_cost_model(override: str, cost: str, executor: str) -> None:
    choices = {"cost": "roofline", "executor": executor}
    labels = build(compose(["rate=1", override]), choices).labels
    assert (labels["cost"], labels["executor"]) == (cost, executor)


def test_replayed_steps_have_no_cost_model(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        folder.parquet("steps.parquet", {"duration_s": "float64"}).write({"duration_s": [0.5]})
    run = build(
        compose(["rate=1", "executor=replay", f"executor.path={tmp_path}"]), {"cost": "roofline", "executor": "replay"}
    )
    assert (run.labels["cost"], run.labels["executor"]) == (None, "replay")
