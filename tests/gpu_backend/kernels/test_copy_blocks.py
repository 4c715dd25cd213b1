import pytest
import torch

from gpu_backend.kernels.copy_blocks import (
    buffer_shape,
    copy_blocks,
    copy_blocks_reference,
    gather_blocks,
    gather_blocks_reference,
    scatter_blocks,
)
from gpu_backend.kv_cache import KVCache
from kvsim.specs import ModelSpec

MODEL = ModelSpec(
    name="tiny",
    architecture="llama",
    num_layers=3,
    hidden_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=20,
    ffn_size=64,
    vocab_size=100,
    max_model_len=64,
    tied_embeddings=False,
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
)


def filled(device, block_size=4, num_slots=34, seed=0):
    cache = KVCache(MODEL, num_slots, block_size, dtype=torch.float32, device=device)
    generator = torch.Generator(device).manual_seed(seed)
    for pool in (cache.keys, cache.values):
        pool.copy_(torch.randn(pool.shape, generator=generator, device=device))
    return cache


def integers(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


@pytest.mark.parametrize(
    ("block_size", "pairs"),
    [(4, [(0, 1), (1, 2), (2, 0)]), (4, [(5, 6), (5, 7)]), (1, [(0, 33), (33, 3)]), (16, [(1, 0)]), (4, [])],
)
def test_copies_are_a_parallel_assignment(block_size, pairs, device):
    cache, expected = filled(device, block_size), filled(device, block_size)
    pairs = integers(pairs, device).view(-1, 2)
    copy_blocks(cache, pairs)
    copy_blocks_reference(expected, pairs)
    assert torch.equal(cache.keys, expected.keys) and torch.equal(cache.values, expected.values)


def test_swap_out_and_in_elsewhere(device):
    cache, before = filled(device), filled(device)
    buffer = torch.full(buffer_shape(cache, 2), float("nan"), device=device)
    gather_blocks(cache, integers([6, 1], device), buffer)
    assert torch.equal(buffer, gather_blocks_reference(before, integers([6, 1], device)))
    scatter_blocks(cache, integers([0, 6], device), buffer)
    assert torch.equal(cache.keys[:, :, :4], before.keys[:, :, 24:28])
    assert torch.equal(cache.values[:, :, 24:28], before.values[:, :, 4:8])
    assert torch.equal(cache.keys[:, :, 4:24], before.keys[:, :, 4:24])


def test_refusals(device):
    cache = filled(device)
    with pytest.raises(ValueError, match="pairs, 2"):
        copy_blocks(cache, integers([1, 2], device))
    with pytest.raises(ValueError, match="int32"):
        copy_blocks(cache, integers([[1, 2]], device).long())
    with pytest.raises(ValueError, match="contiguous"):
        gather_blocks(cache, integers([1], device), torch.empty(buffer_shape(cache, 2), device=device))
