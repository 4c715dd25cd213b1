"""RMSNorm and LayerNorm against plain torch."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.kernels.norm import norm, norm_reference
from tests.gpu_backend.kernels.errors import TOLERANCE, error


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("width", [48, 64, 1500])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_residual", [False, True])
def test_norm(dtype: torch.dtype, width: int, has_bias: bool, has_residual: bool, device: torch.device) -> None:
    torch.manual_seed(0)
    x_TE = torch.randn(5, width, device=device).add(0.5).to(dtype)
    weight_E, bias_E = torch.randn(2, width, device=device).to(dtype)
    bias = bias_E if has_bias else None
    residual = torch.randn(5, width, device=device).to(dtype) if has_residual else None
    expected_residual = residual.float().clone() if residual is not None else None
    before = x_TE.clone()
    out_TE = norm(x_TE, weight_E, bias, 1e-3, residual)
    expected = norm_reference(
        x_TE.float(), weight_E.float(), bias.float() if has_bias else None, 1e-3, expected_residual
    )
    assert error(out_TE, expected) < TOLERANCE[dtype]
    assert torch.equal(x_TE, before)
    if residual is not None:
        assert error(residual, expected_residual) < TOLERANCE[dtype]


def test_norm_is_torchs() -> None:
    x_TE, weight_E, bias_E = torch.randn(3, 20), torch.randn(20), torch.randn(20)
    layer_norm = torch.nn.functional.layer_norm(x_TE, (20,), weight_E, bias_E, 1e-3)
    torch.testing.assert_close(norm_reference(x_TE, weight_E, bias_E, 1e-3), layer_norm)
    rms_norm = torch.nn.functional.rms_norm(x_TE, (20,), weight_E, 1e-3)
    torch.testing.assert_close(norm_reference(x_TE, weight_E, None, 1e-3), rms_norm)


def test_refusals(device: torch.device) -> None:
    x_TE, weight_E = torch.randn(4, 8, device=device), torch.randn(8, device=device)
    with pytest.raises(ValueError, match="contiguous matrix"):
        norm(x_TE.t().contiguous().t(), weight_E, None, 1e-5)
    with pytest.raises(ValueError, match=r"weight and bias .* must be \(8,\)"):
        norm(x_TE, weight_E[:7], None, 1e-5)
    with pytest.raises(ValueError, match=r"residual_TE \(3, 8\) must be like x_TE \(4, 8\)"):
        norm(x_TE, weight_E, None, 1e-5, x_TE[:3])
