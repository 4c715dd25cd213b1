"""Our Triton kernels through block tables (PagedAttention, arXiv:2309.06180, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.kernels.decode_attention import decode_attention
from gpu_backend.kernels.prefill_attention import prefill_attention
from gpu_backend.kv_cache import LayerCache


@dataclass(frozen=True)
class TritonPaged:
    """One launch for the rows of one token, one for all longer rows."""

    contiguous = False
    capturable = True

    def forward(self, q_THD: Tensor, cache: LayerCache, batch: Batch, block_size: int, scale: float) -> Tensor:
        """See `Attention.forward`."""
        decode_only = batch.num_single_rows == len(q_THD)
        # not `like`: q_THD is a view of the merged projection
        new = torch.empty if decode_only else torch.zeros
        out_THD = new(q_THD.shape, dtype=q_THD.dtype, device=q_THD.device)
        paged = not self.contiguous
        decode_attention(q_THD, cache, batch, out_THD, block_size=block_size, scale=scale, paged=paged)
        if len(batch.query_tiles):
            prefill_attention(q_THD, cache, batch, out_THD, block_size=block_size, scale=scale, paged=paged)
        return out_THD
