"""What an attention backend must do. Legend: T tokens, H query heads, K kv heads, D head_dim."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.kv_cache import LayerCache


class Attention(Protocol):
    """Causal attention of every token of a batch over the cache of its sequence."""

    contiguous: bool
    """Needs every sequence in one piece, as buddy pools give it."""
    capturable: bool
    """`forward` reads nothing back to the host and may run inside a CUDA graph."""

    def forward(self, q_THD: Tensor, cache: LayerCache, batch: Batch, block_size: int, scale: float) -> Tensor:
        """[T, H, D] attention output; the keys and values of `batch` are in the cache already.

        Rows of padding tokens are finite but otherwise undefined.

        Raises:
            ValueError: shapes, strides or types that the backend does not take.
        """
        ...
