"""Attention in plain torch and float32, row by row: what every other backend is compared with.

Legend: T tokens, H query heads, K kv heads, D head_dim, C tokens a row sees, N new tokens of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.kv_cache import LayerCache


class Row(NamedTuple):
    """Tokens [first, stop) of the batch and the slots of all the tokens they see, themselves included."""

    first: int
    stop: int
    slots_C: Tensor


def rows(batch: Batch, block_size: int) -> Iterator[Row]:
    """The rows that are no padding; reads the batch back to the host."""
    starts = batch.query_start_loc.tolist()
    offsets = torch.arange(block_size, device=batch.block_tables.device)
    for index, seq_len in enumerate(batch.seq_lens.tolist()):
        if seq_len:
            blocks = batch.block_tables[index, : -(-seq_len // block_size)].long()
            slots = (blocks[:, None] * block_size + offsets).flatten()[:seq_len]
            yield Row(starts[index], starts[index + 1], slots)


def causal_mask(num_tokens: int, seq_len: int, device: torch.device) -> Tensor:
    """[N, C] bool: which of the row's tokens each of its last `num_tokens` sees."""
    return torch.ones((num_tokens, seq_len), dtype=torch.bool, device=device).tril(seq_len - num_tokens)


@dataclass(frozen=True)
class Reference:
    """Softmax(scale q k^T) v as written, on inputs turned into float32."""

    contiguous = False
    capturable = False

    def forward(self, q_THD: Tensor, cache: LayerCache, batch: Batch, block_size: int, scale: float) -> Tensor:
        """See `Attention.forward`."""
        out_THD = torch.zeros_like(q_THD)
        num_kv_heads = cache.keys.shape[0]
        for first, stop, slots_C in rows(batch, block_size):
            q_HND = q_THD[first:stop].float().transpose(0, 1)
            q_KGND = q_HND.reshape(num_kv_heads, -1, *q_HND.shape[1:])
            k_KCD, v_KCD = cache.keys[:, slots_C].float(), cache.values[:, slots_C].float()
            score_KGNC = scale * q_KGND @ k_KCD[:, None].mT
            visible_NC = causal_mask(stop - first, len(slots_C), q_THD.device)
            weight_KGNC = score_KGNC.masked_fill(~visible_NC, float("-inf")).softmax(-1)
            out_THD[first:stop] = (weight_KGNC @ v_KCD[:, None]).flatten(0, 1).transpose(0, 1)
        return out_THD
