"""A llama model in a GGUF file, quantized or not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import torch
from torch import Tensor

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
        self.path = path
        try:
            self._reader = gguf.GGUFReader(path)
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise ConfigError(f"{path} is no readable GGUF file: {error}") from error
        architecture = self._field("general.architecture", "")
        if architecture != "llama":
            raise ConfigError(f"{path}: GGUF architecture {architecture!r} is not supported, must be 'llama'")
        scaling = self._field("llama.rope.scaling.type", "none")
        self._tensors = {_hf_name(tensor.name): tensor for tensor in self._reader.tensors}
        if scaling != "none" or "rope_freqs.weight" in self._tensors:
            raise ConfigError(f"{path}: scaled rotary frequencies ({scaling}) are not supported")
        heads = self._field("llama.attention.head_count")
        self.facts: Mapping[str, Any] = {
            "architecture": architecture,
            "num_layers": self._field("llama.block_count"),
            "num_heads": heads,
            "num_kv_heads": self._field("llama.attention.head_count_kv", heads),
            "head_dim": self._field("llama.rope.dimension_count", self._field("llama.embedding_length") // heads),
            "tied_embeddings": "lm_head.weight" not in self._tensors,
            "rope_theta": float(self._field("llama.rope.freq_base", 10000.0)),
            "norm_eps": self._field("llama.attention.layer_norm_rms_epsilon"),
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

    def _field(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(key)
        if field is None and default is None:
            raise ConfigError(f"{self.path}: field {key} is missing")
        return default if field is None else field.contents()


def _hf_name(name: str) -> str:
    """Hugging Face name of a GGUF tensor, without the leading ``model.``; others stay as they are."""
    stem, _, kind = name.rpartition(".")
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if layer and layer[2] in LAYER:
        return f"layers.{layer[1]}.{LAYER[layer[2]]}.{kind}"
    return f"{ROOT[stem]}.{kind}" if stem in ROOT else name
