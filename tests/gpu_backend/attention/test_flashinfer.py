import sys

import pytest
import torch

from gpu_backend.attention.flashinfer import import_flashinfer, pages
from kvsim.errors import ConfigError
from tests.gpu_backend.attention.problems import make_problem


def test_pages_are_views_of_the_pool(device):
    _, cache, batch, block_size, _ = make_problem([(1, 40)], device=device)
    keys, values = pages(cache, block_size)
    block = int(batch.block_tables[0, 1])
    assert keys.shape == (6, 2, 16, 32) and keys.data_ptr() == cache.keys.data_ptr()
    assert torch.equal(keys[block], cache.keys[:, block * 16 : block * 16 + 16])
    assert torch.equal(values[block], cache.values[:, block * 16 : block * 16 + 16])


def test_one_line_if_it_cannot_run(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"^attention=flashinfer needs a CUDA device; choose attention=sdpa.*$"):
        import_flashinfer()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(ConfigError, match=r"^attention=flashinfer: the package is not installed; pip install.*$"):
        import_flashinfer()
