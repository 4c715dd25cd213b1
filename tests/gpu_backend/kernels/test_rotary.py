"""Rotary positions with the cache write, against plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpu_backend.kernels.rotary import rotary_tables, rotate_and_write, rotate_and_write_reference
from gpu_backend.kv_cache import LayerCache
from tests.gpu_backend.kernels.errors import TOLERANCE, error

POSITIONS, SLOTS = [3, 0, 49, 7], [3, -1, 19, 0]


def layer_cache(heads: int, dim: int, dtype: torch.dtype, device: torch.device, *, token_major: bool) -> LayerCache:
    shape = (2, 20, heads, dim) if token_major else (2, heads, 20, dim)
    pool = torch.full(shape, 7.0, dtype=dtype, device=device)
    return LayerCache(*(pool.transpose(1, 2) if token_major else pool))


def inputs(width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return (
        torch.randn(4, width, device=device).to(dtype),
        torch.tensor(POSITIONS, dtype=torch.int32, device=device),
        torch.tensor(SLOTS, device=device),
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(2, 2, 8), (12, 4, 12), (30, 1, 16), (1, 1, 2)])
@pytest.mark.parametrize("token_major", [False, True])
def test_rotate_and_write(
    dtype: torch.dtype, heads: int, kv_heads: int, dim: int, token_major: bool, device: torch.device
) -> None:
    qkv_TW, positions, slots = inputs((heads + 2 * kv_heads) * dim, dtype, device)
    tables = rotary_tables(50, dim, 500.0, device)
    cache = layer_cache(kv_heads, dim, dtype, device, token_major=token_major)
    expected = layer_cache(kv_heads, dim, torch.float32, device, token_major=False)
    expected_THD = rotate_and_write_reference(qkv_TW.float(), expected, positions, slots, *tables)
    before = qkv_TW.clone()
    q_THD = rotate_and_write(qkv_TW, cache, positions, slots, *tables)
    assert q_THD.shape == (4, heads, dim) and q_THD.data_ptr() == qkv_TW.data_ptr()
    assert error(q_THD, expected_THD) < TOLERANCE[dtype]
    assert error(cache.keys, expected.keys) < TOLERANCE[dtype]
    assert torch.equal(cache.values.float(), expected.values)
    assert torch.equal(qkv_TW[:, heads * dim :], before[:, heads * dim :])  # only the queries change


def test_it_is_a_rotation_by_the_position(device: torch.device) -> None:
    qkv_TW, positions, slots = inputs(3 * 8, torch.float32, device)
    before = qkv_TW.clone()
    cache = layer_cache(1, 8, torch.float32, device, token_major=False)
    q_THD = rotate_and_write(qkv_TW, cache, positions, slots, *rotary_tables(50, 8, 100.0, device))
    pairs = torch.complex(before[:, :4].double(), before[:, 4:8].double())
    angles = positions[:, None].double() * 100.0 ** (-torch.arange(4, device=device).double() / 4)
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(q_THD[:, 0], torch.cat((turned.real, turned.imag), dim=1).float())


def test_a_negative_slot_writes_nothing(device: torch.device) -> None:
    qkv_TW, positions, slots = inputs(3 * 8, torch.float32, device)
    cache = layer_cache(1, 8, torch.float32, device, token_major=False)
    rotate_and_write(qkv_TW, cache, positions, torch.full_like(slots, -1), *rotary_tables(50, 8, 1e4, device))
    assert (cache.keys == 7.0).all() and (cache.values == 7.0).all()


def test_refusals(device: torch.device) -> None:
    qkv_TW, positions, slots = inputs(3 * 8, torch.float32, device)
    cache = layer_cache(1, 8, torch.float32, device, token_major=False)
    tables = rotary_tables(50, 8, 1e4, device)
    with pytest.raises(ValueError, match="whole heads of 8"):
        rotate_and_write(qkv_TW[:, :16].contiguous(), cache, positions, slots, *tables)
    with pytest.raises(ValueError, match="laid out like"):
        rotate_and_write(qkv_TW, cache._replace(values=cache.values[:, :5]), positions, slots, *tables)
    with pytest.raises(ValueError, match="stride 2 between"):
        wide = torch.zeros(1, 20, 16, device=device)[..., ::2]
        rotate_and_write(qkv_TW, LayerCache(wide, wide), positions, slots, *tables)
    with pytest.raises(ValueError, match=r"\(int64\) must be \(4,\)"):
        rotate_and_write(qkv_TW, cache, positions, slots.int(), *tables)
    with pytest.raises(ValueError, match=r"float32 \[positions, 4\]"):
        rotate_and_write(qkv_TW, cache, positions, slots, *rotary_tables(50, 16, 1e4, device))
