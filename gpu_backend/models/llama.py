"""Llama (arXiv:2302.13971), Mistral, Qwen2: rotary positions, RMSNorm, gated MLP. Legend: see `decoder`."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.kernels.activation import silu_mul
from gpu_backend.kernels.rotary import rotary_tables, rotate_and_write
from gpu_backend.kv_cache import LayerCache
from gpu_backend.models.decoder import Affine, Decoder
from kvsim.specs import ModelSpec


class LlamaDecoder(Decoder):
    """A Llama of any size; biases where the parameters have them."""

    def __init__(self, model: ModelSpec, parameters: Mapping[str, Tensor]) -> None:
        super().__init__(model, parameters)
        self._cos, self._sin = rotary_tables(model.max_model_len, model.head_dim, model.rope_theta, self.device)

    def _embed(self, batch: Batch) -> Tensor:
        return F.embedding(batch.input_ids, self.embedding)

    def _write(self, qkv_TW: Tensor, cache: LayerCache, batch: Batch) -> Tensor:
        return rotate_and_write(qkv_TW, cache, batch.positions, batch.slot_mapping, self._cos, self._sin)

    def _activate(self, x_TE: Tensor, up: Affine) -> Tensor:
        return silu_mul(F.linear(x_TE, *up))
