import pytest
import torch

from gpu_backend.kernels.count_slots import count_slots, count_slots_reference, poison
from tests.gpu_backend.kernels.test_copy_blocks import filled


@pytest.mark.parametrize("block_size", [1, 4, 32])
def test_counts_what_was_written(block_size, device):
    cache = filled(device, block_size, num_slots=70)
    poison(cache)
    written = [0, 1, 2, 3, 9, 40, 69]
    slots = torch.tensor(written, device=device)
    cache.keys[:, :, slots] = torch.randn_like(cache.keys[:, :, slots])
    counts = count_slots(cache)
    assert torch.equal(counts, count_slots_reference(cache))
    expected = [sum(slot // block_size == block for slot in written) for block in range(-(-70 // block_size))]
    assert counts.tolist() == expected


@pytest.mark.parametrize("missing", [(0, 0, 0), (2, 1, 19)])
def test_a_key_missing_in_any_layer_or_head_does_not_count(missing, device):
    cache = filled(device)
    layer, head, column = missing
    cache.keys[layer, head, 5, column] = float("nan")
    assert count_slots(cache).tolist() == [4, 3, *[4] * 6, 2]
