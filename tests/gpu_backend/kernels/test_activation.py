"""SiLU-mul against plain torch."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.kernels.activation import silu_mul, silu_mul_reference
from tests.gpu_backend.kernels.errors import TOLERANCE, error


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("width", [1, 80, 1030])
def test_silu_mul(dtype: torch.dtype, width: int, device: torch.device) -> None:
    torch.manual_seed(0)
    x_T2F = torch.randn(3, 2 * width, device=device).mul(4).to(dtype)
    before = x_T2F.clone()
    out_TF = silu_mul(x_T2F)
    assert out_TF.shape == (3, width) and out_TF.dtype == dtype
    assert error(out_TF, silu_mul_reference(x_T2F.float())) < TOLERANCE[dtype]
    assert torch.equal(x_T2F, before)


@pytest.mark.filterwarnings("ignore:overflow")  # of the interpreter
def test_large_gates_stay_finite(device: torch.device) -> None:
    x_T2F = torch.tensor([[-1e4, 1e4, 1.0, 1.0]], device=device)
    torch.testing.assert_close(silu_mul(x_T2F).cpu(), torch.tensor([[0.0, 1e4]]))


def test_refusals(device: torch.device) -> None:
    with pytest.raises(ValueError, match="even width"):
        silu_mul(torch.randn(2, 5, device=device))
    with pytest.raises(ValueError, match="contiguous"):
        silu_mul(torch.randn(4, 8, device=device)[:, :4])
