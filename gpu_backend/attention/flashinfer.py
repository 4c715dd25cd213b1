"""FlashInfer's kernels, for comparison (arXiv:2501.01005). Legend: T tokens, H query heads, K kv heads, D head_dim.

A block of our head-major pool is a strided page of its HND layout: [pages, K, block, D].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.kv_cache import LayerCache
from kvsim.errors import ConfigError

WORKSPACE_BYTES = 256 << 20

Run = Callable[[Tensor, LayerCache], Tensor]
"""Attention of [T, H, D] queries over a layer's cache, in the shapes it was planned for."""


def import_flashinfer() -> Any:
    """The package.

    Raises:
        ConfigError: it is not installed, or there is no CUDA device.
    """
    if not torch.cuda.is_available():
        raise ConfigError("attention=flashinfer needs a CUDA device; choose attention=sdpa on a CPU")
    try:
        import flashinfer
    except ImportError as error:
        raise ConfigError(
            "attention=flashinfer: the package is not installed; pip install flashinfer-python==0.6.8.post1"
        ) from error
    return flashinfer


def pages(cache: LayerCache, block_size: int) -> tuple[Tensor, Tensor]:
    """Keys and values as views [pages, K, block_size, D]."""
    heads, slots, head_dim = cache.keys.shape
    stride_head, stride_slot, stride_dim = cache.keys.stride()
    shape = (slots // block_size, heads, block_size, head_dim)
    strides = (block_size * stride_slot, stride_head, stride_slot, stride_dim)
    return cache.keys.as_strided(shape, strides), cache.values.as_strided(shape, strides)


@dataclass(frozen=True)
class FlashInfer:
    """Decode and prefill wrappers, planned anew for every layer of every step.

    Args:
        tensor_cores: of the decode kernel; pays where query heads share a kv head.
        prefill: fa2, fa3 (Hopper), or auto: what FlashInfer thinks best.
    """

    tensor_cores: bool = True
    prefill: str = "auto"
    contiguous = False
    capturable = False

    def plan(self, q_THD: Tensor, cache: LayerCache, batch: Batch, block_size: int, scale: float) -> Run:
        """What runs this batch; its rows without padding, whose tokens come first."""
        flashinfer = import_flashinfer()
        live = batch.seq_lens > 0
        lengths = batch.seq_lens[live]
        num_pages = (lengths + block_size - 1) // block_size
        starts = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=q_THD.device)
        starts[1:] = num_pages.cumsum(0)
        tables = batch.block_tables[live]
        indices = tables[torch.arange(tables.shape[1], device=q_THD.device) < num_pages[:, None]]
        last_page_len = (lengths - 1) % block_size + 1
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=q_THD.device)
        shape = (q_THD.shape[1], cache.keys.shape[0], q_THD.shape[2], block_size)
        types = {"q_data_type": q_THD.dtype, "kv_data_type": cache.keys.dtype, "sm_scale": scale}
        if len(batch.query_tiles):
            new = batch.query_start_loc.diff()[live]
            query_starts = torch.zeros_like(starts)
            query_starts[1:] = new.cumsum(0)
            wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND", backend=self.prefill)
            wrapper.plan(query_starts, starts, indices, last_page_len, *shape, causal=True, **types)
        else:
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                workspace, "HND", use_tensor_cores=self.tensor_cores
            )
            wrapper.plan(starts, indices, last_page_len, *shape, **types)
        return lambda q_THD, cache: wrapper.run(q_THD, pages(cache, block_size))

    def forward(self, q_THD: Tensor, cache: LayerCache, batch: Batch, block_size: int, scale: float) -> Tensor:
        """See `Attention.forward`."""
        run = self.plan(q_THD, cache, batch, block_size, scale)
        tokens = int(batch.query_start_loc[-1])
        out_THD = torch.zeros(q_THD.shape, dtype=q_THD.dtype, device=q_THD.device)
        out_THD[:tokens] = run(q_THD[:tokens].contiguous(), cache)
        return out_THD
