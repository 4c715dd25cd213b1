import pytest
import torch

from gpu_backend.kernels.write_kv import write_kv, write_kv_reference
from gpu_backend.kv_cache import LayerCache


def poisoned(device, heads, slots, head_dim):
    pool = torch.full((2, heads, slots + 5, head_dim), float("nan"), device=device)
    return LayerCache(*pool[:, :, :slots])


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 64), (3, 80), (20, 16)])
def test_tokens_reach_their_slots_and_no_other(heads, head_dim, device):
    cache, expected = (poisoned(device, heads, 12, head_dim) for _ in range(2))
    merged = torch.randn((5, 4 * heads, head_dim), device=device)
    k_TKD, v_TKD = merged[:, heads : 2 * heads], merged[:, 3 * heads :]
    slots = torch.tensor([11, -1, 0, 7, -1], device=device)
    write_kv(k_TKD, v_TKD, cache, slots)
    write_kv_reference(k_TKD, v_TKD, expected, slots)
    for pool, wanted in zip(cache, expected, strict=True):
        assert torch.equal(pool.nan_to_num(9e9), wanted.nan_to_num(9e9))
    assert cache.keys[:, [0, 7, 11]].isfinite().all() and cache.keys[:, 1:7].isnan().all()


def test_token_major_caches(device):
    pool = torch.full((2, 8, 3, 16), float("nan"), device=device).transpose(1, 2)
    k_TKD, v_TKD = torch.randn((2, 4, 3, 16), device=device)
    write_kv(k_TKD, v_TKD, LayerCache(*pool), torch.tensor([3, 1, 4, 6], device=device))
    assert torch.equal(pool[0][:, [3, 1, 4, 6]], k_TKD.transpose(0, 1))
    assert torch.equal(pool[1][:, [3, 1, 4, 6]], v_TKD.transpose(0, 1))


def test_refusals(device):
    cache = poisoned(device, 2, 8, 16)
    k_TKD = torch.randn((3, 2, 16), device=device)
    slots = torch.arange(3, device=device)
    for message, arguments in {
        "must be": (k_TKD[:, :1], k_TKD[:, :1], slots),
        "must agree": (k_TKD.half(), k_TKD, slots),
        "int64": (k_TKD, k_TKD, slots.int()),
        "contiguous": (k_TKD.mT.contiguous().mT, k_TKD, slots),
    }.items():
        k, v, mapping = arguments
        with pytest.raises(ValueError, match=message):
            write_kv(k, v, cache, mapping)
