"""The KV pool in device memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kvsim.errors import ConfigError
from kvsim.specs import GIB, ModelSpec


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

    Raises:
        ConfigError: the device has no room for it.
    """

    def __init__(
        self, model: ModelSpec, num_slots: int, block_size: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (model.num_layers, model.num_kv_heads, num_slots, model.head_dim)
        self.block_size = block_size
        self.num_slots = num_slots
        need = 2 * dtype.itemsize * torch.Size(shape).numel()
        if device.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
            free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            if need > free:
                raise ConfigError(
                    f"the KV pool of {num_slots} tokens needs {need / GIB:.1f} GiB, {free / GIB:.1f} of "
                    f"{total / GIB:.1f} GiB are free on {device}; lower kv.num_blocks or hardware.memory_utilization"
                )
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def num_bytes(self) -> int:
        """Bytes of the pool."""
        return self.keys.nbytes + self.values.nbytes

    def layer(self, index: int) -> LayerCache:
        """Views of one layer."""
        return LayerCache(self.keys[index], self.values[index])
