"""PyTorch's own attention, row by row over gathered keys and values. Legend: T tokens, H query heads, D head_dim."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_backend.attention.reference import causal_mask, rows
from gpu_backend.batch import Batch
from gpu_backend.kv_cache import LayerCache


@dataclass(frozen=True)
class Sdpa:
    """Needs no kernel of ours; copies every row's context first, so it is slow."""

    contiguous = False
    capturable = False

    def forward(self, q_THD: Tensor, cache: LayerCache, batch: Batch, block_size: int, scale: float) -> Tensor:
        """See `Attention.forward`."""
        out_THD = torch.zeros_like(q_THD)
        for first, stop, slots in rows(batch, block_size):
            attended = F.scaled_dot_product_attention(
                q_THD[None, first:stop].transpose(1, 2),
                cache.keys[None, :, slots],
                cache.values[None, :, slots],
                attn_mask=causal_mask(stop - first, len(slots), q_THD.device) if stop - first > 1 else None,
                scale=scale,
                enable_gqa=q_THD.shape[1] != cache.keys.shape[0],
            )
            out_THD[first:stop] = attended[0].transpose(0, 1)
        return out_THD
