"""Shapes of models and GPUs, and how many KV blocks fit beside the weights (vLLM paper, Table 1)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kvsim.checks import check_flag, check_integer, check_number
from kvsim.errors import ConfigError

GIB = 1 << 30
HF_FAMILIES = ("opt", "llama", "mistral", "qwen2")
OPT_POSITION_OFFSET = 2  # OPT's position table starts with two rows that no token uses


@dataclass(frozen=True)
class ModelSpec:
    """Shape of a dense decoder.

    Attributes:
        architecture: ``opt`` (learned positions, LayerNorm, two-matrix MLP) or ``llama`` (rotary, RMSNorm, gated MLP).
        ffn_size: inner width of the MLP.
        max_model_len: longest sequence, prompt + output tokens.
        tied_embeddings: the LM head is the input embedding.
        qkv_bias, output_bias, mlp_bias: whether these projections have biases.
        num_position_embeddings: rows of the learned position table; 0 for rotary positions.
        rope_theta: base of the rotary frequencies (llama).
        norm_eps: what the norms add to the variance.
        dtype_bytes: bytes of a weight and of a cached key or value element.

    Raises:
        ConfigError: a field is not a number in range, or the shape is inconsistent.
    """

    name: str
    architecture: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_model_len: int
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    num_position_embeddings: int = 0
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    dtype_bytes: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"model.name={self.name!r} must be a non-empty text")
        if self.architecture not in ("opt", "llama"):
            raise ConfigError(f"model.architecture={self.architecture!r} must be opt or llama")
        for field in ("num_layers", "num_heads", "num_kv_heads", "head_dim"):
            check_integer(f"model.{field}", getattr(self, field), high=10**5)
        for field in ("hidden_size", "ffn_size", "vocab_size", "max_model_len"):
            check_integer(f"model.{field}", getattr(self, field))
        for field in ("tied_embeddings", "qkv_bias", "output_bias", "mlp_bias"):
            check_flag(f"model.{field}", getattr(self, field))
        check_integer("model.num_position_embeddings", self.num_position_embeddings, low=0)
        check_number("model.rope_theta", self.rope_theta, 1.0, 1e12)
        check_number("model.norm_eps", self.norm_eps, 1e-12, 1e-2)
        check_integer("model.dtype_bytes", self.dtype_bytes, high=8)
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"model.num_kv_heads={self.num_kv_heads} must divide model.num_heads={self.num_heads} ({self.name})"
            )
        if self.architecture == "opt" and self.num_heads * self.head_dim != self.hidden_size:
            raise ConfigError(
                f"model.num_heads={self.num_heads} x model.head_dim={self.head_dim} must be "
                f"model.hidden_size={self.hidden_size} in an opt model"
            )
        positions = self.num_position_embeddings - OPT_POSITION_OFFSET
        if self.architecture == "opt" and self.max_model_len > positions:
            raise ConfigError(
                f"model.max_model_len={self.max_model_len} exceeds the {positions} positions of {self.name}: "
                f"lower it or raise model.num_position_embeddings"
            )
        if self.architecture == "llama" and self.num_position_embeddings:
            raise ConfigError(
                f"model.num_position_embeddings={self.num_position_embeddings} must be 0: llama uses rotary positions"
            )

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: attention, MLP, both norms."""
        query, key = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (2 * query + 2 * key)
        attention += self.qkv_bias * (query + 2 * key) + self.output_bias * self.hidden_size
        inner = self.mlp_width
        mlp = self.hidden_size * (inner + self.ffn_size) + self.mlp_bias * (inner + self.hidden_size)
        return attention + mlp + 2 * self.norm_parameters

    @property
    def mlp_width(self) -> int:
        """Outputs of the MLP's first product: gate and up projection in llama, one matrix in opt."""
        return 2 * self.ffn_size if self.architecture == "llama" else self.ffn_size

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm: scale, and shift for LayerNorm."""
        return self.hidden_size if self.architecture == "llama" else 2 * self.hidden_size

    @property
    def head_parameters(self) -> int:
        """Parameters the LM head reads (shared with the input embedding where tied)."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All parameters: embeddings, positions, layers, final norm, head; tied matrices once."""
        tables = self.head_parameters * (1 if self.tied_embeddings else 2)
        positions = self.num_position_embeddings * self.hidden_size
        return tables + positions + self.num_layers * self.layer_parameters + self.norm_parameters

    @property
    def weight_bytes(self) -> int:
        """Bytes of all parameters."""
        return self.num_parameters * self.dtype_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token, all layers, all GPUs together (heads counted once)."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype_bytes

    def kv_bytes_per_gpu(self, tensor_parallel: int) -> int:
        """Bytes of keys and values of one token on each GPU; KV heads are replicated where GPUs outnumber them.

        Raises:
            ConfigError: the heads cannot be split over so many GPUs.
        """
        larger, smaller = max(self.num_kv_heads, tensor_parallel), min(self.num_kv_heads, tensor_parallel)
        if self.num_heads % tensor_parallel or larger % smaller:
            raise ConfigError(
                f"hardware.tensor_parallel={tensor_parallel} cannot split the {self.num_heads} heads and "
                f"{self.num_kv_heads} KV heads of {self.name}: choose a divisor of both"
            )
        return self.kv_bytes_per_token // self.num_kv_heads * max(1, self.num_kv_heads // tensor_parallel)

    @classmethod
    def from_hf_config(cls, path: str | Path) -> Self:
        """Shape from a Hugging Face ``config.json`` (or its folder) of an OPT, Llama, Mistral or Qwen2 model.

        A sliding window caps `max_model_len`, inside which attention is full. Weights and KV are taken as 16 bit.

        Raises:
            ConfigError: the file cannot be read, a field is missing, or the model is of another kind.
        """
        file = Path(path)
        file = file / "config.json" if file.is_dir() else file
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"model.config={str(path)!r} is no readable Hugging Face config.json: {error}") from error
        kind = config.get("model_type") if isinstance(config, dict) else None
        if kind not in HF_FAMILIES:
            raise ConfigError(f"{file}: model_type {kind!r} is not supported; supported are {', '.join(HF_FAMILIES)}")
        if config.get("quantization_config"):
            raise ConfigError(
                f"{file}: quantized weights (quantization_config) are not supported; use the 16-bit model"
            )
        name = file.resolve().parent.name if file.name == "config.json" else file.stem
        try:
            return cls(name=name, **(_opt_shape(config) if kind == "opt" else _llama_shape(config, kind)))
        except KeyError as error:
            raise ConfigError(f"{file}: field {error} is missing; a {kind} model needs it") from error
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from error


def _common_shape(config: dict[str, Any]) -> dict[str, Any]:
    """Fields that all families name alike."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    check_integer("hidden_size", hidden)
    check_integer("num_attention_heads", heads)
    check_integer("max_position_embeddings", config["max_position_embeddings"])
    head_dim = config.get("head_dim")
    if head_dim is None and hidden % heads:
        raise ConfigError(f"num_attention_heads={heads} must divide hidden_size={hidden} where head_dim is not given")
    return {
        "num_layers": config["num_hidden_layers"],
        "hidden_size": hidden,
        "num_heads": heads,
        "head_dim": hidden // heads if head_dim is None else head_dim,
        "vocab_size": config["vocab_size"],
    }


def _opt_shape(config: dict[str, Any]) -> dict[str, Any]:
    shape, length = _common_shape(config), config["max_position_embeddings"]
    if config.get("word_embed_proj_dim", shape["hidden_size"]) != shape["hidden_size"] or not config.get(
        "do_layer_norm_before", True
    ):
        raise ConfigError("an OPT with projected embeddings or post-layer norms (opt-350m) is not supported")
    bias = config.get("enable_bias", True)
    return shape | {
        "architecture": "opt",
        "num_kv_heads": shape["num_heads"],
        "ffn_size": config["ffn_dim"],
        "max_model_len": length,
        "tied_embeddings": config.get("tie_word_embeddings", True),
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": bias,
        "num_position_embeddings": length + OPT_POSITION_OFFSET,
    }


def _llama_shape(config: dict[str, Any], kind: str) -> dict[str, Any]:
    shape, length = _common_shape(config), config["max_position_embeddings"]
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    window = length if window is None else window
    check_integer("sliding_window", window)
    bias = config.get("attention_bias", False)
    rope = config.get("rope_parameters") or {}  # where newer files keep the base
    if not isinstance(rope, dict):
        raise ConfigError(f"rope_parameters={rope!r} must be a mapping")
    return shape | {
        "architecture": "llama",
        # Only llama's own default is one KV head a query head; the others always write the field.
        "num_kv_heads": config.get("num_key_value_heads") or shape["num_heads"]
        if kind == "llama"
        else config["num_key_value_heads"],
        "ffn_size": config["intermediate_size"],
        "max_model_len": min(length, window),
        "tied_embeddings": config.get("tie_word_embeddings", False),
        "qkv_bias": bias or kind == "qwen2",
        "output_bias": bias,
        "mlp_bias": config.get("mlp_bias", False),
        "rope_theta": rope.get("rope_theta", config.get("rope_theta", 10000.0)),
        "norm_eps": config.get("rms_norm_eps", 1e-6),
    }


def load_model(config: str | None = None, **shape: Any) -> ModelSpec:
    """The model of a ``conf/model`` file: `shape`, or, where given, the Hugging Face ``config.json`` at `config`.

    Raises:
        ConfigError: see `ModelSpec`.
    """
    if config is not None and not isinstance(config, str):
        raise ConfigError(f"model.config={config!r} must be the path of a Hugging Face config.json")
    return ModelSpec.from_hf_config(config) if config is not None else ModelSpec(**shape)


@dataclass(frozen=True)
class HardwareSpec:
    """One kind of GPU and how many of them share the model.

    Attributes:
        memory_bytes: memory of one GPU as its driver reports it.
        memory_bandwidth: peak of one GPU, bytes/s.
        peak_flops: dense 16-bit peak of one GPU, FLOP/s.
        interconnect_bandwidth: of one GPU to the others, both directions together, bytes/s.
        tensor_parallel: number of GPUs.
        memory_utilization: fraction of the memory that the engine may use.
        workspace_bytes: bytes of each GPU kept for libraries and kernels.

    Raises:
        ConfigError: a field is not a number in range.
    """

    name: str
    memory_bytes: int
    memory_bandwidth: float
    peak_flops: float
    interconnect_bandwidth: float
    tensor_parallel: int
    memory_utilization: float
    workspace_bytes: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"hardware.name={self.name!r} must be a non-empty text")
        check_integer("hardware.memory_bytes", self.memory_bytes, high=10**15)
        check_number("hardware.memory_bandwidth", self.memory_bandwidth, 1e6, 1e15)
        check_number("hardware.peak_flops", self.peak_flops, 1e6, 1e18)
        check_number("hardware.interconnect_bandwidth", self.interconnect_bandwidth, 1e6, 1e15)
        check_integer("hardware.tensor_parallel", self.tensor_parallel, high=1024)
        check_number("hardware.memory_utilization", self.memory_utilization, 0.01, 1.0)
        check_integer("hardware.workspace_bytes", self.workspace_bytes, low=0, high=10**15)


def num_kv_blocks(model: ModelSpec, hardware: HardwareSpec, block_size: int, max_num_batched_tokens: int) -> int:
    """KV blocks that fit beside weights, activations and workspace on each GPU.

    The rule is that of the vLLM paper's artifact: activations are the larger of two layers' peak and of the logits
    of a full batch (twice, the second for sampling).

    Args:
        block_size: tokens a block.
        max_num_batched_tokens: tokens of the largest step.

    Raises:
        ConfigError: not a single block fits, or the heads cannot be split.
    """
    check_integer("kv.block_size", block_size)
    check_integer("scheduler.max_num_batched_tokens", max_num_batched_tokens)
    gpus, tokens = hardware.tensor_parallel, max_num_batched_tokens
    block_bytes = block_size * model.kv_bytes_per_gpu(gpus)
    qkv_width = (model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    layer = 2 * (tokens * max(qkv_width, model.mlp_width) // gpus + tokens * model.hidden_size)
    activations = model.dtype_bytes * max(layer, 2 * tokens * model.vocab_size)
    usable = math.floor(hardware.memory_utilization * hardware.memory_bytes)
    weights = -(-model.weight_bytes // gpus)
    left = usable - weights - activations - hardware.workspace_bytes
    if left < block_bytes:
        raise ConfigError(
            f"{model.name} does not fit {gpus} x {hardware.name}: of {usable / GIB:.2f} GiB usable on each GPU, "
            f"weights take {weights / GIB:.2f}, activations {activations / GIB:.2f}, "
            f"workspace {hardware.workspace_bytes / GIB:.2f}, "
            f"which leaves {left / GIB:.2f} GiB where a block needs {block_bytes / GIB:.4f}: raise "
            f"hardware.tensor_parallel or hardware.memory_utilization, or lower scheduler.max_num_batched_tokens"
        )
    return left // block_bytes
