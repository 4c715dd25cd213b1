"""OPT (arXiv:2205.01068): learned positions, LayerNorm, a ReLU between two matrices. Legend: see `decoder`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.kernels.write_kv import write_kv
from gpu_backend.kv_cache import LayerCache
from gpu_backend.models.decoder import Affine, Decoder
from kvsim.specs import OPT_POSITION_OFFSET, ModelSpec


class OPTDecoder(Decoder):
    """An OPT of any size with pre-layer norms."""

    def __init__(self, model: ModelSpec, parameters: Mapping[str, Tensor]) -> None:
        super().__init__(model, parameters)
        self._positions = parameters["positions.weight"][OPT_POSITION_OFFSET:]
        self._key = model.num_heads  # first key head of a row of the merged projection
        self._value = model.num_heads + model.num_kv_heads

    def _embed(self, batch: Batch) -> Tensor:
        return F.embedding(batch.input_ids, self.embedding) + F.embedding(batch.positions, self._positions)

    def _write(self, qkv_TW: Tensor, cache: LayerCache, batch: Batch) -> Tensor:
        heads_TXD = qkv_TW.view(len(qkv_TW), -1, self.model.head_dim)
        write_kv(heads_TXD[:, self._key : self._value], heads_TXD[:, self._value :], cache, batch.slot_mapping)
        return heads_TXD[:, : self._key]

    def _activate(self, x_TE: Tensor, up: Affine) -> Tensor:
        if up.bias is None:
            return F.linear(x_TE, up.weight).relu_()
        return torch._addmm_activation(up.bias, x_TE, up.weight.t(), use_gelu=False)  # ReLU inside the product
