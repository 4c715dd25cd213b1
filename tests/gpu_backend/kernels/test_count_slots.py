import pytest
import torch

from gpu_backend.kernels.count_slots import SlotCount, count_slots, count_slots_reference, poison
from tests.gpu_backend.kernels.test_copy_blocks import filled, integers


@pytest.mark.parametrize("block_size", [1, 4, 32])
def test_counts_what_was_written(block_size, device):
    cache = filled(device, block_size, num_slots=70)
    poison(cache)
    slots = torch.tensor([0, 1, 2, 3, 9, 40, 69], device=device)
    cache.keys[:, :, slots] = torch.randn_like(cache.keys[:, :, slots])
    blocks = integers([0, 2], device)
    count = count_slots(cache, blocks)
    assert count == count_slots_reference(cache, blocks)
    assert sum(count) == 7
    assert count == {1: SlotCount(2, 5), 4: SlotCount(5, 2), 32: SlotCount(6, 1)}[block_size]


@pytest.mark.parametrize("missing", [(0, 0, 0), (2, 1, 19)])
def test_a_key_missing_in_any_layer_or_head_does_not_count(missing, device):
    cache = filled(device)
    layer, head, column = missing
    cache.keys[layer, head, 5, column] = float("nan")
    assert count_slots(cache, integers([1], device)) == SlotCount(3, 30)


def test_blocks_outside_of_the_pool(device):
    with pytest.raises(ValueError, match="the pool has 9"):
        count_slots(filled(device), integers([9], device))
