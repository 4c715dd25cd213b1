"""`Decoder`: the pre-norm transformer that OPT and Llama share.

Legend: T tokens, S samples, E hidden size, H query heads, K kv heads, D head_dim, W = (H + 2K) * D, F MLP width,
V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from gpu_backend.attention.base import Attention
from gpu_backend.batch import Batch
from gpu_backend.kernels.norm import norm
from gpu_backend.kv_cache import KVCache, LayerCache
from kvsim.specs import ModelSpec


class Affine(NamedTuple):
    """Weight and bias of a projection [out, in] or of a norm [E]."""

    weight: Tensor
    bias: Tensor | None


class Layer(NamedTuple):
    """Parameters of one layer."""

    attention_norm: Affine
    qkv: Affine
    out: Affine
    mlp_norm: Affine
    up: Affine
    down: Affine


class Decoder(ABC):
    """Forward passes whose keys and values live in a cache that others manage.

    Nothing is read back to the host and no shape depends on data, so passes can be captured in CUDA graphs.

    Args:
        parameters: by the names of `gpu_backend.models.parameters.layout`.
    """

    def __init__(self, model: ModelSpec, parameters: Mapping[str, Tensor]) -> None:
        def affine(name: str) -> Affine:
            return Affine(parameters[f"{name}.weight"], parameters.get(f"{name}.bias"))

        self.model = model
        self.num_layers = model.num_layers
        self.embedding = parameters["embedding.weight"]
        self.dtype = self.embedding.dtype
        self.device = self.embedding.device
        self.layers = [
            Layer(*(affine(f"layers.{index}.{name}") for name in Layer._fields)) for index in range(model.num_layers)
        ]
        self.final_norm = affine("final_norm")
        self.head = parameters.get("head.weight", self.embedding)
        self._scale = model.head_dim**-0.5

    def hidden(self, batch: Batch, cache: KVCache, attention: Attention) -> Tensor:
        """[T, E] states of every token after the final norm; writes the tokens' keys and values into `cache`.

        Rows of padding tokens are undefined.
        """
        residual_TE = self._embed(batch)
        norms = [layer.attention_norm for layer in self.layers[1:]] + [self.final_norm]
        normed_TE = self._norm(residual_TE, self.layers[0].attention_norm)
        for index, (layer, next_norm) in enumerate(zip(self.layers, norms, strict=True)):
            layer_cache = cache.layer(index)
            q_THD = self._write(F.linear(normed_TE, *layer.qkv), layer_cache, batch)
            attended_THD = attention.forward(q_THD, layer_cache, batch, cache.block_size, self._scale)
            out_TE = F.linear(attended_THD.flatten(1), *layer.out)
            normed_TE = self._norm(out_TE, layer.mlp_norm, residual_TE)
            inner_TF = self._activate(normed_TE, layer.up)
            normed_TE = self._norm(F.linear(inner_TF, *layer.down), next_norm, residual_TE)
        return normed_TE

    def logits(self, hidden_SE: Tensor) -> Tensor:
        """[S, V] logits in the type of the weights, of some rows of `hidden`."""
        return F.linear(hidden_SE, self.head)

    def _norm(self, x_TE: Tensor, parameters: Affine, residual_TE: Tensor | None = None) -> Tensor:
        return norm(x_TE, *parameters, self.model.norm_eps, residual_TE)

    @abstractmethod
    def _embed(self, batch: Batch) -> Tensor:
        """[T, E] what the first layer sees, in memory of its own."""

    @abstractmethod
    def _write(self, qkv_TW: Tensor, cache: LayerCache, batch: Batch) -> Tensor:
        """[T, H, D] queries, a view of `qkv_TW`; keys and values go to the cache."""

    @abstractmethod
    def _activate(self, x_TE: Tensor, up: Affine) -> Tensor:
        """[T, F] input of the MLP's last product."""
