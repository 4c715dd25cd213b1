"""Every option of every group composes and builds."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from kvsim.config import Config, build, compose

GROUPS = (
    "allocator",
    "attention",
    "cost",
    "executor",
    "experiment",
    "hardware",
    "model",
    "scheduler",
    "system",
    "workload",
)
BIG = "hardware.memory_bytes=4000000000000"  # every model fits


def options() -> list[str]:
    files = ((group, file.name) for group in GROUPS for file in (resources.files("kvsim.conf") / group).iterdir())
    return sorted(f"{group}={name.removesuffix('.yaml')}" for group, name in files if name != "base.yaml")


def needs(option: str, tmp_path: Path) -> list[str]:
    """What an option cannot do without."""
    if option == "workload=trace":
        trace = tmp_path / "trace.csv"
        trace.write_text("arrival_time_s,num_prompt_tokens,num_output_tokens\n0.5,7,3\n")
        return [f"workload.path={trace}"]
    if option == "executor=replay":
        from kvsim.results import RunFolder

        with RunFolder(tmp_path) as folder:
            folder.parquet("steps.parquet", {"duration_s": "float64"}).write({"duration_s": [0.5]})
        return [f"executor.path={tmp_path}", "rate=1"]
    if option == "executor=gpu":
        if pytest.importorskip("torch").cuda.is_available():
            pytest.skip("runs on a CPU; CUDA_VISIBLE_DEVICES= hides the GPU")
        small = ["num_layers=1", "hidden_size=32", "num_heads=2", "num_kv_heads=1", "ffn_size=32", "vocab_size=50"]
        model = ["model=smollm2-135m", *(f"model.{field}" for field in small)]
        return [*model, "executor.device=cpu", "attention=sdpa", "kv.num_blocks=64", "rate=1"]
    return ["rate=1"]


@pytest.mark.parametrize("option", options())
def test_option_builds(option: str, tmp_path: Path) -> None:
    run = build(compose([option, BIG, *needs(option, tmp_path)]))
    assert run.pool_tokens > 0
    assert run.scheduler.max_model_len == run.scheduler.allocator.max_model_len  # type: ignore[attr-defined]


@pytest.mark.parametrize("option", [option for option in options() if option.startswith("system=")])
def test_system_runs_and_sets_no_numbers(option: str) -> None:
    run = build(compose([option, "rate=1", "num_requests=20"]))
    assert run.execute()["completed"] == 20
    name = option.removeprefix("system=")
    assert run.labels["system"] == name
    text = (resources.files("kvsim.conf") / "system" / f"{name}.yaml").read_text(encoding="utf-8")
    assert list(OmegaConf.create(text)) == ["defaults", "system"]


def test_attention_follows_the_allocator() -> None:
    for option in options():
        if option.startswith("system="):
            cfg = compose([option])
            contiguous = cfg.attention._target_.endswith("TritonContiguous")
            assert contiguous == (".contiguous." in cfg.allocator._target_), option


def test_group_list_is_complete() -> None:
    folders = {entry.name for entry in resources.files("kvsim.conf").iterdir() if entry.is_dir()}
    assert folders - {"hydra", "__pycache__"} == set(GROUPS)


def test_every_key_is_in_the_schema() -> None:
    assert set(compose()) == set(OmegaConf.structured(Config))


def test_defaults() -> None:
    cfg = compose()
    assert (cfg.system.name, cfg.model.name, cfg.hardware.name) == ("vllm_v1", "opt-13b", "a100-40gb")
    assert (cfg.seed, cfg.rate, cfg.kv.block_size, cfg.output) == (0, None, 16, "table")


def test_command_line_beats_experiment_beats_preset() -> None:
    cfg = compose(["experiment=quickstart", "system=orca_max", "rate=7", "scheduler=chunked"])
    assert cfg.kv.num_slots == 15728
    assert cfg.rate == 7
    assert cfg.scheduler._target_.endswith("ChunkedScheduler")
    assert cfg.allocator._target_.endswith("ReserveMax")


def test_the_oracle_goes_to_those_who_declare_it() -> None:
    oracles = set()
    for option in options():
        if option.startswith("allocator="):
            allocator = build(compose([option, "rate=1"])).allocator
            if getattr(allocator, "uses_oracle", False):
                oracles.add(option.removeprefix("allocator="))
            else:
                assert not hasattr(allocator, "_oracle")
    assert oracles == {"buddy_oracle", "buddy_pow2"}
