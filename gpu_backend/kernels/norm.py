"""RMSNorm and LayerNorm, with the addition to the residual stream fused in. Legend: T tokens, E hidden size."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _norm_kernel(
    out_ptr,
    x_ptr,
    residual_ptr,
    weight_ptr,
    bias_ptr,
    width,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    CENTER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    if CENTER:
        bias = tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        x += tl.load(residual_ptr + row + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual_ptr + row + column, x.to(residual_ptr.dtype.element_ty), mask=inside)
    if CENTER:
        x = tl.where(inside, x - tl.sum(x, axis=0) / width, 0.0)
    x *= tl.rsqrt(tl.sum(x * x, axis=0) / width + eps) * weight
    if CENTER:
        x += bias
    tl.store(out_ptr + row + column, x.to(out_ptr.dtype.element_ty), mask=inside)


def norm(
    x_TE: Tensor, weight_E: Tensor, bias_E: Tensor | None, eps: float, residual_TE: Tensor | None = None
) -> Tensor:
    """[T, E] norm of `x_TE`, or of `residual_TE` + `x_TE`, which then replaces `residual_TE`.

    LayerNorm where there is a bias, else RMSNorm. Sums are float32; the norm sees the sum before it is rounded.

    Raises:
        ValueError: shapes, types or strides do not fit.
    """
    width = x_TE.shape[-1]
    vectors = (weight_E,) if bias_E is None else (weight_E, bias_E)
    if x_TE.dim() != 2 or not x_TE.is_contiguous():
        raise ValueError(f"x_TE {tuple(x_TE.shape)} must be a contiguous matrix")
    if any(vector.shape != (width,) or not vector.is_contiguous() for vector in vectors):
        raise ValueError(f"weight and bias {[tuple(vector.shape) for vector in vectors]} must be ({width},)")
    if residual_TE is not None and (
        residual_TE.shape != x_TE.shape or residual_TE.dtype != x_TE.dtype or not residual_TE.is_contiguous()
    ):
        raise ValueError(f"residual_TE {tuple(residual_TE.shape)} must be like x_TE {tuple(x_TE.shape)}, {x_TE.dtype}")
    out_TE = torch.empty_like(x_TE)
    block = triton.next_power_of_2(width)
    _norm_kernel[(len(x_TE),)](
        out_TE,
        x_TE,
        residual_TE,
        weight_E,
        bias_E,
        width,
        eps,
        HAS_RESIDUAL=residual_TE is not None,
        CENTER=bias_E is not None,
        BLOCK=block,
        num_warps=max(1, min(16, block // 512)),
    )
    return out_TE


def norm_reference(
    x_TE: Tensor, weight_E: Tensor, bias_E: Tensor | None, eps: float, residual_TE: Tensor | None = None
) -> Tensor:
    """`norm` in plain torch."""
    x = x_TE.float()
    if residual_TE is not None:
        x = x + residual_TE.float()
        residual_TE.copy_(x)
    if bias_E is not None:
        x = x - x.mean(-1, keepdim=True)
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight_E.float()
    return (x if bias_E is None else x + bias_E.float()).to(x_TE.dtype)
