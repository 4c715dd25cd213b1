"""The gate of a llama MLP. Legend: T tokens, F inner width."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _silu_mul_kernel(out_ptr, x_ptr, width, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    x_ptr += token * 2 * width
    gate = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + width + column, mask=inside, other=0.0).to(tl.float32)
    out = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + token * width + column, out.to(out_ptr.dtype.element_ty), mask=inside)


def silu_mul(gate_up_T2F: Tensor) -> Tensor:
    """[T, F] ``silu(gate) * up`` of [T, gate | up], computed in float32.

    Raises:
        ValueError: not a contiguous matrix of even width.
    """
    if gate_up_T2F.dim() != 2 or gate_up_T2F.shape[1] % 2 or not gate_up_T2F.is_contiguous():
        raise ValueError(f"gate_up_T2F {tuple(gate_up_T2F.shape)} must be a contiguous matrix of even width")
    tokens, width = gate_up_T2F.shape[0], gate_up_T2F.shape[1] // 2
    out_TF = torch.empty(tokens, width, dtype=gate_up_T2F.dtype, device=gate_up_T2F.device)
    _silu_mul_kernel[(tokens, triton.cdiv(width, BLOCK))](out_TF, gate_up_T2F, width, BLOCK=BLOCK, num_warps=4)
    return out_TF


def silu_mul_reference(gate_up_T2F: Tensor) -> Tensor:
    """`silu_mul` in plain torch."""
    gate, up = gate_up_T2F.float().chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(gate_up_T2F.dtype)
