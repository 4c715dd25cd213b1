"""Our Triton kernels over sequences that lie in one piece, as in Orca and FasterTransformer: no block table is read."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_backend.attention.triton_paged import TritonPaged


@dataclass(frozen=True)
class TritonContiguous(TritonPaged):
    """The same kernels without the indirection: what paging costs is the difference (paper, Fig. 18a)."""

    contiguous = True
