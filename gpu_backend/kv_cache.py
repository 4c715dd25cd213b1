"""The KV pool in device memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kvsim.specs import ModelSpec


class LayerCache(NamedTuple):
    """Keys and values of one layer: two views [kv_heads, slots, head_dim], last dimension contiguous.

    Head-major: a block of one head is one contiguous piece, and a range of slots is an ordinary
    [kv_heads, tokens, head_dim] view. Kernels take the strides, so other layouts work too.
    """

    keys: Tensor
    values: Tensor


class KVCache:
    """One flat pool a layer; ``slot = block_id * block_size + offset``.

    Attributes:
        keys, values: [layers, kv_heads, slots, head_dim].
    """

    def __init__(
        self, model: ModelSpec, num_slots: int, block_size: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (model.num_layers, model.num_kv_heads, num_slots, model.head_dim)
        self.block_size = block_size
        self.num_slots = num_slots
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    def layer(self, index: int) -> LayerCache:
        """Views of one layer."""
        return LayerCache(self.keys[index], self.values[index])
