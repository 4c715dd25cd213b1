"""The top of the configuration, typed, and `build`: from a composed configuration to a `Run` that is ready to go."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import hydra
from hydra import initialize_config_module
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from kvsim.checks import check_integer
from kvsim.errors import ConfigError
from kvsim.parts import asks_for, make_part
from kvsim.units import MAX_SECONDS, NS_PER_S

if TYPE_CHECKING:
    from kvsim.latency import SLO
    from kvsim.protocols import CostModel, KVAllocator, Scheduler
    from kvsim.run import Run
    from kvsim.specs import HardwareSpec, ModelSpec

log = logging.getLogger(__name__)

LEAST_STEP_TOKENS = 2560
"""A pool leaves room for the activations of a step of at least so many tokens, so that systems with smaller or no
budgets are compared on the same pool, as in the vLLM paper's artifact."""


class Output(StrEnum):
    """How the summary is printed."""

    table = "table"
    json = "json"


@dataclass
class KVConfig:
    """The pool; `num_blocks` and `num_slots` null: what the hardware holds beside the model."""

    num_blocks: int | None = None
    num_slots: int | None = None
    block_size: int = 16


@dataclass
class SLOConfig:
    """The most that each latency of a request may be, ms, to count as goodput; null: no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None


@dataclass
class EngineConfig:
    """How the run is carried out; results do not depend on it, but for `drain`."""

    drain: bool = True
    fast_forward: bool = True
    record_plans: bool = False
    record_blocks: bool = False


@dataclass
class SweepConfig:
    """What `kvsim sweep` does with the points of its grid."""

    dry_run: bool = False


@dataclass
class CalibrateConfig:
    """What `kvsim calibrate` measures and where it writes.

    Attributes:
        output: the profile, a .yaml file.
        points: the measured steps, CSV; null: beside the profile.
        from_points: fit these, measure nothing.
        repeats: passes over the grid.
        max_seconds: for the grid.
        max_tokens, max_rows: of its largest step.
        systems: presets that are run to see the host at work, for `run_seconds` of their time each, half of it at
            `rate` and half at a fifth of it.
    """

    output: str | None = None
    points: str | None = None
    from_points: str | None = None
    repeats: int = 4
    max_seconds: float = 240.0
    max_tokens: int = 8192
    max_rows: int = 256
    systems: list[str] = field(default_factory=lambda: ["vllm_v1", "fastertransformer"])
    rate: float = 20.0
    run_seconds: float = 15.0


@dataclass
class ToleranceConfig:
    """The largest relative errors that `kvsim validate` lets pass; p99 may differ more where the queue grows."""

    step: float = 0.03
    throughput: float = 0.02
    median: float = 0.03
    p99: float = 0.05
    p99_overload: float = 0.1


@dataclass
class ValidateConfig:
    """What `kvsim validate` compares.

    Attributes:
        systems: presets, run in this order.
        loads: name -> request rate as a share of the system's simulated capacity; null: left out.
        num_requests: of a run.
        repeats: measured runs of each workload.
        measured: words that make the measured side besides those of `executor`.
        output: folder of the results.
    """

    systems: list[str] = field(
        default_factory=lambda: [
            "vllm_paper",
            "vllm_v0",
            "vllm_v1",
            "fastertransformer",
            "orca_max",
            "orca_pow2",
            "orca_oracle",
        ]
    )
    loads: dict[str, float | None] = field(default_factory=lambda: {"light": 0.5, "knee": 0.9, "overload": 1.3})
    num_requests: int = 200
    repeats: int = 2
    measured: list[str] = field(default_factory=list)
    output: str = "outputs/validate"
    tolerance: ToleranceConfig = field(default_factory=ToleranceConfig)


@dataclass
class SystemConfig:
    """Name of the preset that picked scheduler and allocator."""

    name: str = MISSING


@dataclass
class Config:
    """All top-level keys. Groups are open, so that a plug-in's constructor decides what it takes."""

    model: Any = MISSING
    hardware: Any = MISSING
    workload: Any = MISSING
    cost: Any = MISSING
    executor: Any = MISSING
    scheduler: Any = MISSING
    allocator: Any = MISSING
    attention: Any = MISSING
    system: SystemConfig = field(default_factory=SystemConfig)
    seed: int = 0
    rate: float | None = None
    duration: float | None = None
    num_requests: int | None = None
    warmup: float = 0.0
    kv: KVConfig = field(default_factory=KVConfig)
    slo: SLOConfig = field(default_factory=SLOConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    calibrate: CalibrateConfig = field(default_factory=CalibrateConfig)
    validate: ValidateConfig = field(default_factory=ValidateConfig)
    output: Output = Output.table


ConfigStore.instance().store(name="schema", node=Config)


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """The configuration that these overrides give, as `kvsim run` would compose it.

    Raises:
        HydraException: an override that cannot be applied.
    """
    with initialize_config_module("kvsim.conf", version_base="1.3"):
        return hydra.compose("config", list(overrides))


def build(cfg: DictConfig, choices: Mapping[str, str] | None = None) -> Run:
    """All objects of a run, from a composed configuration.

    Args:
        choices: option chosen in each group; the summary names workload, cost and executor by it.

    Raises:
        ConfigError: a value is out of range, or values contradict each other.
        OmegaConfBaseException: a key that does not exist, or a value of the wrong type.
    """
    from kvsim.run import Run
    from kvsim.workload.outcomes import Outcomes

    # once more against the schema: a plus on the command line opens it for keys that nobody would read
    checked = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.to_container(cfg))
    assert isinstance(checked, DictConfig)
    cfg = checked
    choices = choices or {}
    _check_window(cfg)
    _check_workload_keys(cfg)
    slo = _slo(cfg)
    model, hardware = make_part(cfg, "model"), make_part(cfg, "hardware")
    workload, cost = make_part(cfg, "workload"), make_part(cfg, "cost", model=model, hardware=hardware)
    outcomes = Outcomes()
    num_blocks = _num_blocks(cfg, model, hardware)
    scheduler, allocator = _build_policies(cfg, model, num_blocks, outcomes)
    block_size = cfg.kv.block_size
    executor = make_part(
        cfg,
        "executor",
        cost=cost,
        outcomes=outcomes,
        model=model,
        tensor_parallel=hardware.tensor_parallel,
        num_slots=num_blocks * block_size,
        block_size=block_size,
        max_model_len=scheduler.max_model_len,
        max_num_seqs=OmegaConf.select(cfg, "scheduler.max_num_seqs"),
        max_num_batched_tokens=OmegaConf.select(cfg, "scheduler.max_num_batched_tokens"),
        contiguous=allocator.whole_blocks,
        seed=cfg.seed,
    )
    return Run(
        labels={
            "system": cfg.system.name,
            "model": model.name,
            "hardware": hardware.name,
            "workload": choices.get("workload"),
            # a measured step has no cost model
            "cost": choices.get("cost") if asks_for(cfg, "executor", "cost") else None,
            "executor": choices.get("executor"),
            "rate": cfg.rate,
            "seed": cfg.seed,
            "kv_num_blocks": num_blocks,
            "kv_pool_gib": round(num_blocks * block_size * model.kv_bytes_per_token / 2**30, 3),
        },
        workload=workload,
        scheduler=scheduler,
        allocator=allocator,
        executor=executor,
        outcomes=outcomes,
        pool_tokens=num_blocks * block_size,
        warmup_ns=round(cfg.warmup * NS_PER_S),
        duration_ns=None if cfg.duration is None else round(cfg.duration * NS_PER_S),
        slo=slo,
        **cfg.engine,
    )


def build_cost(cfg: DictConfig) -> CostModel:
    """The cost model alone.

    Raises:
        ConfigError: a value is out of range.
    """
    cost: CostModel = make_part(cfg, "cost", model=make_part(cfg, "model"), hardware=make_part(cfg, "hardware"))
    return cost


def _check_window(cfg: DictConfig) -> None:
    duration, warmup = cfg.duration, cfg.warmup
    if duration is not None and not (math.isfinite(duration) and 0 < duration <= MAX_SECONDS):
        raise ConfigError(
            f"duration={duration:g}: must be above 0 and at most {MAX_SECONDS:g} s; give for example duration=600"
        )
    if not (math.isfinite(warmup) and 0 <= warmup <= MAX_SECONDS):
        raise ConfigError(f"warmup={warmup:g}: must be from 0 to {MAX_SECONDS:g} s; give for example warmup=60")
    if duration is not None and warmup >= duration:
        raise ConfigError(f"warmup={warmup:g}: must be below duration={duration:g} s; lower it or lengthen the run")
    if duration is None and not cfg.engine.drain:
        raise ConfigError("engine.drain=false: stops at duration, which is not set; give for example duration=600")


def _check_workload_keys(cfg: DictConfig) -> None:
    """The summary speaks of the top-level keys, so a workload must not go its own way."""
    for key in ("seed", "rate", "duration", "num_requests"):
        own = cfg.workload.get(key, cfg[key])
        if own != cfg[key]:
            raise ConfigError(f"workload.{key}={own}: differs from {key}={cfg[key]}; give {key}={own} instead")


def _slo(cfg: DictConfig) -> SLO:
    from kvsim.latency import SLO

    for name, limit in cfg.slo.items():
        if limit is not None and not (math.isfinite(limit) and limit > 0):
            raise ConfigError(f"slo.{name}={limit:g}: must be a finite number of ms above 0; give for example 500")
    return SLO(**cfg.slo)


def _num_blocks(cfg: DictConfig, model: ModelSpec, hardware: HardwareSpec) -> int:
    """Blocks of the pool: as asked for, or as many as fit."""
    from kvsim.kv.base import MAX_BLOCKS, check_block_size
    from kvsim.specs import num_kv_blocks

    num_blocks, num_slots, block_size = cfg.kv.num_blocks, cfg.kv.num_slots, cfg.kv.block_size
    check_block_size(block_size)
    if num_blocks is not None and num_slots is not None:
        raise ConfigError(
            f"kv.num_blocks={num_blocks} and kv.num_slots={num_slots} both set the pool; give one of them"
        )
    if num_slots is not None:
        num_blocks = num_slots // block_size
        if not 1 <= num_blocks <= MAX_BLOCKS:
            most = MAX_BLOCKS * block_size
            raise ConfigError(f"kv.num_slots={num_slots}: must be from {block_size}, one block, to {most} tokens")
    if num_blocks is None:
        budget = OmegaConf.select(cfg, "scheduler.max_num_batched_tokens") or 0
        return num_kv_blocks(model, hardware, block_size, max(budget, LEAST_STEP_TOKENS))
    check_integer("kv.num_blocks", num_blocks, high=MAX_BLOCKS)
    _warn_if_too_large(num_blocks * block_size, model, hardware)
    return int(num_blocks)


def _warn_if_too_large(num_slots: int, model: ModelSpec, hardware: HardwareSpec) -> None:
    """A pool larger than the card may be asked for, but not by mistake."""
    asked = num_slots * model.kv_bytes_per_token / hardware.tensor_parallel
    if asked > hardware.memory_bytes:
        log.warning(
            "the KV pool takes %.1f GiB of each GPU, %s has %.1f GiB",
            asked / 2**30,
            hardware.name,
            hardware.memory_bytes / 2**30,
        )


def _build_policies(
    cfg: DictConfig, model: ModelSpec, num_blocks: int, outcomes: object
) -> tuple[Scheduler, KVAllocator]:
    """Scheduler and allocator at the longest sequence that model, pool and step allow."""
    length = _asked_length(cfg, model)
    while True:
        allocator: KVAllocator = make_part(
            cfg,
            "allocator",
            num_blocks=num_blocks,
            block_size=cfg.kv.block_size,
            max_model_len=length,
            oracle=outcomes,
        )
        scheduler: Scheduler = make_part(cfg, "scheduler", allocator=allocator, max_model_len=length, oracle=outcomes)
        limit, why = min(
            (length, "what is asked for"),
            (allocator.max_sequence_tokens, f"the longest sequence that the empty pool of {num_blocks} blocks holds"),
            (scheduler.max_prompt_tokens, "scheduler.max_num_batched_tokens, since prompts are not chunked"),
            key=itemgetter(0),
        )
        if limit < length and allocator.whole_blocks:
            limit -= limit % cfg.kv.block_size
        if limit < 2:
            raise ConfigError(f"max_model_len would be {limit}, {why}; a request needs 2 tokens: raise that limit")
        if limit == length:
            return scheduler, allocator
        log.warning("max_model_len lowered from %d to %d, %s", length, limit, why)
        length = limit


def _asked_length(cfg: DictConfig, model: ModelSpec) -> int:
    asked = OmegaConf.select(cfg, "scheduler.max_model_len")
    if asked is None:
        return model.max_model_len
    limit = f"the limit is {model.name}'s, model.max_model_len"
    return check_integer("scheduler.max_model_len", asked, 2, model.max_model_len, limit)
