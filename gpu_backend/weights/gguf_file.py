"""A llama model in a GGUF file, quantized or not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from kvsim.checks import check_integer, check_number, shown
from kvsim.errors import ConfigError

ROOT = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GGUFFile:
    """Tensors of a file, dequantized to float32 one by one.

    Raises:
        ConfigError: the file cannot be read, or its model is computed in another way.
    """

    def __init__(self, path: Path) -> None:
        stat = path.stat()
        self._reader = _open(path, stat.st_mtime_ns, stat.st_size)
        architecture = self._field("general.architecture", "")
        if architecture != "llama":
            raise ConfigError(f"GGUF architecture {shown(architecture)} is not supported, must be 'llama'")
        scaling = self._field("llama.rope.scaling.type", "none")
        self._tensors = {_hf_name(tensor.name): tensor for tensor in self._reader.tensors}
        factors = {self._number(f"rope.{key}", 1.0) for key in ("scaling.factor", "scale_linear")}
        if scaling != "none" or factors - {0.0, 1.0} or "rope_freqs.weight" in self._tensors:
            raise ConfigError("scaled rotary frequencies are not supported; give a model without")
        for tensor in self._reader.tensors:
            _check_type(tensor)
        heads = self._count("attention.head_count")
        self.facts: Mapping[str, Any] = {
            "architecture": architecture,
            "num_layers": self._count("block_count"),
            "num_heads": heads,
            "num_kv_heads": self._count("attention.head_count_kv", heads),
            "head_dim": self._count("rope.dimension_count", self._count("embedding_length") // heads),
            "tied_embeddings": "lm_head.weight" not in self._tensors,
            "rope_theta": self._number("rope.freq_base", 10000.0),
            "norm_eps": self._number("attention.layer_norm_rms_epsilon"),
        }
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: tuple(int(size) for size in reversed(tensor.shape)) for name, tensor in self._tensors.items()
        }

    def read(self, name: str) -> Tensor:
        """The tensor, on the CPU in float32, with rotary pairs half a head apart."""
        stored = self._tensors[name]
        tensor = torch.tensor(gguf.quants.dequantize(stored.data, stored.tensor_type))
        if ".q_proj." in name or ".k_proj." in name:
            # stored with the two of a pair side by side: [heads, D / 2, 2, ...]
            heads = self.facts["num_heads" if ".q_proj." in name else "num_kv_heads"]
            tensor = tensor.reshape(heads, -1, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
        return tensor

    def _count(self, key: str, default: int | None = None) -> int:
        return check_integer(f"field llama.{key}", self._field(f"llama.{key}", default))

    def _number(self, key: str, default: float | None = None) -> float:
        return check_number(f"field llama.{key}", self._field(f"llama.{key}", default), 0.0, 1e12)

    def _field(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(key)
        if field is None and default is None:
            raise ConfigError(f"field {key} is missing")
        try:
            return default if field is None else field.contents()
        except ValueError as error:
            raise ConfigError(f"field {key} cannot be read: {error}") from error


@lru_cache(maxsize=1)
def _open(path: Path, modified_ns: int, size: int) -> gguf.GGUFReader:
    """The open file; a sweep asks for the same one again and again, and its vocabulary takes seconds to read."""
    try:
        reader = gguf.GGUFReader(path)
    except Exception as error:  # the reader checks little: a damaged file can make it raise anything
        raise ConfigError(f"is no readable GGUF file: {error}") from error
    if reader.byte_order != "I":
        raise ConfigError("big-endian GGUF files are not supported")
    return reader


def _check_type(tensor: gguf.gguf_reader.ReaderTensor) -> None:
    _, num_bytes = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
    try:
        gguf.quants.dequantize(np.zeros(num_bytes, dtype=np.uint8), tensor.tensor_type)
    except NotImplementedError as error:
        raise ConfigError(f"tensor {tensor.name} has type {tensor.tensor_type.name}, which is not supported") from error


def _hf_name(name: str) -> str:
    """Hugging Face name of a GGUF tensor, without the leading ``model.``; others stay as they are."""
    stem, _, kind = name.rpartition(".")
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if layer and layer[2] in LAYER:
        return f"layers.{layer[1]}.{LAYER[layer[2]]}.{kind}"
    return f"{ROOT[stem]}.{kind}" if stem in ROOT else name
