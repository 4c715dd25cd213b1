"""Shapes to measure attention at, and random inputs of these shapes.

Legend: T tokens, H query heads, K kv heads, S slots, D head_dim, R rows, P blocks of a row, C copies of the cache.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.kernels.prefill_attention import query_tile
from gpu_backend.kv_cache import LayerCache

COLD_BYTES = 1 << 30  # of all copies of a cache together: far beyond any L2
MAX_COPIES = 32


class Shape(NamedTuple):
    """One row of the table; the names are those of its columns."""

    phase: str
    shape: str
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    batch: int
    max_context: int


DECODE = (
    Shape("decode", "opt13b", 40, 40, 128, 16, 32, 512),
    Shape("decode", "opt13b", 40, 40, 128, 16, 32, 1024),
    Shape("decode", "opt13b", 40, 40, 128, 16, 128, 1024),
    Shape("decode", "llama8b", 32, 8, 128, 16, 32, 1024),
    Shape("decode", "llama8b", 32, 8, 128, 16, 128, 1024),
    Shape("decode", "llama8b", 32, 8, 128, 16, 256, 1024),
    Shape("decode", "llama8b", 32, 8, 128, 16, 16, 16384),
    Shape("decode", "llama8b", 32, 8, 128, 16, 1, 32768),
)
PREFILL = (
    Shape("prefill", "opt13b", 40, 40, 128, 16, 4, 1024),
    Shape("prefill", "llama8b", 32, 8, 128, 16, 4, 2048),
    Shape("prefill", "llama8b", 32, 8, 128, 16, 1, 8192),
)
SERVING = tuple(
    Shape("serving", name, num_q_heads, num_kv_heads, 128, 16, batch, 2048)
    for name, num_q_heads, num_kv_heads in (("opt13b", 40, 40), ("llama8b", 32, 8))
    for batch in (8, 24, 32, 48, 128)
)
"""Decode of contexts as a server meets them: log-normal, sigma 1, with a mean of 450."""

TINY = (
    Shape("decode", "tiny", 4, 2, 32, 16, 3, 64),
    Shape("serving", "tiny", 4, 2, 32, 16, 3, 64),
    Shape("prefill", "tiny", 4, 2, 32, 16, 2, 32),
)


class Inputs(NamedTuple):
    """Queries, and a batch a copy of the cache: all copies lie in one pool and are read in turn.

    Attributes:
        scattered, consecutive: [C] the same rows, with blocks anywhere or side by side.
    """

    shape: Shape
    q_THD: Tensor
    cache: LayerCache
    scattered: list[Batch]
    consecutive: list[Batch]
    seq_lens: list[int]

    @property
    def scale(self) -> float:
        """Of the scores."""
        return float(self.shape.head_dim**-0.5)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values that the rows need, each once."""
        per_token = 2 * self.shape.num_kv_heads * self.shape.head_dim * self.q_THD.element_size()
        return sum(self.seq_lens) * per_token

    @property
    def flops(self) -> float:
        """Of causal attention of prompts: two products over half a square."""
        return sum(2.0 * length * length for length in self.seq_lens) * self.shape.num_q_heads * self.shape.head_dim


def make_inputs(
    shape: Shape, *, device: torch.device, dtype: torch.dtype, ragged: bool = True, seed: int = 0
) -> Inputs:
    """Random inputs. Contexts to decode at are uniform in [max / 2, max] if `ragged`; a lone row and prompts are full.

    Rows come longest first, as `Batch` wants them.
    """
    generator = torch.Generator().manual_seed(seed)
    decode = shape.phase != "prefill"
    seq_lens = [shape.max_context] * shape.batch
    if shape.phase == "serving":
        seq_lens = _serving_contexts(shape, generator)
    elif decode and ragged and shape.batch > 1:
        low, high = shape.max_context // 2, shape.max_context + 1
        seq_lens = sorted(torch.randint(low, high, (shape.batch,), generator=generator).tolist(), reverse=True)
    pages = -(-shape.max_context // shape.block_size)
    copy_bytes = shape.batch * pages * shape.block_size * 2 * shape.num_kv_heads * shape.head_dim * dtype.itemsize
    copies = max(1, min(MAX_COPIES, -(-COLD_BYTES // copy_bytes))) if device.type == "cuda" else 2
    blocks = copies * shape.batch * pages

    pool = torch.empty((2, shape.num_kv_heads, blocks * shape.block_size, shape.head_dim), dtype=dtype, device=device)
    pool.normal_()
    new = [1] * shape.batch if decode else seq_lens
    q_THD = torch.randn((sum(new), shape.num_q_heads, shape.head_dim), generator=generator).to(device, dtype)
    tables_CRP = torch.randperm(blocks, generator=generator).view(copies, shape.batch, pages)
    ordered_CRP = torch.arange(blocks).view(copies, shape.batch, pages)

    tile = query_tile(shape.num_q_heads // shape.num_kv_heads)
    tiles = [] if decode else [(row, at) for row, count in enumerate(new) for at in range(0, count, tile)]
    starts = torch.tensor([0, *new]).cumsum(0).to(device, torch.int32)
    shared = {
        "input_ids": torch.zeros(len(q_THD), dtype=torch.int32, device=device),
        "positions": torch.zeros(len(q_THD), dtype=torch.int32, device=device),
        "slot_mapping": torch.full((len(q_THD),), -1, device=device),
        "query_start_loc": starts,
        "seq_lens": torch.tensor(seq_lens, dtype=torch.int32, device=device),
        "query_tiles": torch.tensor(tiles, dtype=torch.int32, device=device).view(-1, 2),
        "sample_tokens": torch.zeros(1, dtype=torch.int64, device=device),
    }

    def batches(tables: Tensor) -> list[Batch]:
        return [
            Batch(
                **shared,
                block_tables=table_RP,
                query_tile=tile,
                num_single_rows=shape.batch if decode else 0,
                max_seq_len=shape.max_context,
            )
            for table_RP in tables.to(device, torch.int32)
        ]

    return Inputs(shape, q_THD, LayerCache(*pool), batches(tables_CRP), batches(ordered_CRP), seq_lens)


def _serving_contexts(shape: Shape, generator: torch.Generator) -> list[int]:
    """Log-normal, sigma 1, with a mean of max / 4.55 before what exceeds the maximum is cut, longest first."""
    mu = math.log(shape.max_context / 4.55) - 0.5
    lengths = (mu + torch.randn(shape.batch, generator=generator)).exp().long().clamp(1, shape.max_context)
    return sorted(lengths.tolist(), reverse=True)
