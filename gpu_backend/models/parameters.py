"""The parameters of a decoder: their names, their shapes, and the checkpoint tensors that each stacks.

Query, key and value projections are one matrix, gate and up projections another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from kvsim.errors import ConfigError
from kvsim.specs import GIB, ModelSpec


class Module(NamedTuple):
    """A projection, an embedding or a norm.

    Attributes:
        parts: (name, rows) of each module of a checkpoint that is stacked here. Names are those of Hugging Face, less
            a leading ``model.``.
        width: columns; 0 for the vectors of a norm.
        bias: whether there is a bias.
    """

    parts: tuple[tuple[str, int], ...]
    width: int
    bias: bool


class Parameter(NamedTuple):
    """A tensor of a decoder: tensors of a checkpoint, (name, shape), one below the other."""

    parts: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole."""
        return sum(shape[0] for _, shape in self.parts), *self.parts[0][1][1:]


def layout(model: ModelSpec) -> dict[str, Parameter]:
    """Every parameter by name: ``embedding.weight``, ``layers.0.qkv.bias`` and so on."""
    return {
        f"{name}.{kind}": Parameter(
            tuple(
                (f"{part}.{kind}", (rows, module.width) if module.width and kind == "weight" else (rows,))
                for part, rows in module.parts
            )
        )
        for name, module in _modules(model)
        for kind in (("weight", "bias") if module.bias else ("weight",))
    }


def _modules(model: ModelSpec) -> Iterator[tuple[str, Module]]:
    opt, hidden = model.architecture == "opt", model.hidden_size
    root = "decoder." if opt else ""
    yield "embedding", Module(((f"{root}embed_tokens", model.vocab_size),), hidden, False)
    if opt:
        yield "positions", Module(((f"{root}embed_positions", model.num_position_embeddings),), hidden, False)
    layer = _opt_layer(model) if opt else _llama_layer(model)
    for index in range(model.num_layers):
        for name, module in layer.items():
            parts = tuple((f"{root}layers.{index}.{part}", rows) for part, rows in module.parts)
            yield f"layers.{index}.{name}", module._replace(parts=parts)
    yield "final_norm", Module(((f"{root}{'final_layer_norm' if opt else 'norm'}", hidden),), 0, opt)
    if not model.tied_embeddings:
        yield "head", Module((("lm_head", model.vocab_size),), hidden, False)


def _opt_layer(model: ModelSpec) -> dict[str, Module]:
    hidden, ffn, key = model.hidden_size, model.ffn_size, model.num_kv_heads * model.head_dim
    qkv = ("self_attn.q_proj", hidden), ("self_attn.k_proj", key), ("self_attn.v_proj", key)
    return {
        "attention_norm": Module((("self_attn_layer_norm", hidden),), 0, True),
        "qkv": Module(qkv, hidden, model.qkv_bias),
        "out": Module((("self_attn.out_proj", hidden),), hidden, model.output_bias),
        "mlp_norm": Module((("final_layer_norm", hidden),), 0, True),
        "up": Module((("fc1", ffn),), hidden, model.mlp_bias),
        "down": Module((("fc2", hidden),), ffn, model.mlp_bias),
    }


def _llama_layer(model: ModelSpec) -> dict[str, Module]:
    hidden, ffn = model.hidden_size, model.ffn_size
    query, key = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    qkv = ("self_attn.q_proj", query), ("self_attn.k_proj", key), ("self_attn.v_proj", key)
    return {
        "attention_norm": Module((("input_layernorm", hidden),), 0, False),
        "qkv": Module(qkv, hidden, model.qkv_bias),
        "out": Module((("self_attn.o_proj", hidden),), query, model.output_bias),
        "mlp_norm": Module((("post_attention_layernorm", hidden),), 0, False),
        "up": Module((("mlp.gate_proj", ffn), ("mlp.up_proj", ffn)), hidden, model.mlp_bias),
        "down": Module((("mlp.down_proj", hidden),), ffn, model.mlp_bias),
    }


def allocate(model: ModelSpec, *, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    """Uninitialized tensors of every parameter.

    Raises:
        ConfigError: the device has no room for them.
    """
    try:
        return {name: torch.empty(item.shape, dtype=dtype, device=device) for name, item in layout(model).items()}
    except torch.OutOfMemoryError as error:
        need = model.num_parameters * dtype.itemsize / GIB
        raise ConfigError(f"the weights of {model.name} need {need:.1f} GiB, {device} has less free") from error
