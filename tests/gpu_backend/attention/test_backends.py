import pytest
import torch

from gpu_backend.attention.reference import Reference
from gpu_backend.attention.sdpa import Sdpa
from gpu_backend.attention.triton_contiguous import TritonContiguous
from gpu_backend.attention.triton_paged import TritonPaged
from gpu_backend.kernels.prefill_attention import query_tile
from tests.gpu_backend.attention.problems import make_problem
from tests.gpu_backend.kernels.errors import error

BACKENDS = (Sdpa(), TritonPaged(), TritonContiguous())
MIXES = {
    "decode": [(1, 40), (1, 1), (1, 17)],
    "prefill": [(20, 20), (2, 2), (33, 33)],
    "mixed": [(1, 40), (0, 0), (20, 20), (5, 37)],  # decode, padding, prompt, chunk
    "padding": [(1, 40), (0, 0), (0, 0)],
}


def test_the_reference_is_attention(device):
    q_THD, cache, batch, block_size, scale = make_problem(MIXES["mixed"], device=device, head_dim=8)
    out = Reference().forward(q_THD, cache, batch, block_size, scale)
    first_of_row = {0: 0, 2: 1, 3: 21}
    for row, first in first_of_row.items():
        new = int(batch.query_start_loc[row + 1] - batch.query_start_loc[row])
        for nth in range(new):
            visible = range(int(batch.seq_lens[row]) - new + nth + 1)
            slots = [int(batch.block_tables[row, at // block_size]) * block_size + at % block_size for at in visible]
            for head in range(4):
                keys, values = cache.keys[head // 2, slots].double(), cache.values[head // 2, slots].double()
                weights = (scale * keys @ q_THD[first + nth, head].double()).exp()
                wanted = weights @ values / weights.sum()
                torch.testing.assert_close(out[first + nth, head].double(), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: type(backend).__name__)
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "block_size"), [(4, 2, 16), (3, 3, 4), (4, 1, 32)])
def test_backends_agree_with_the_reference(backend, mix, num_heads, num_kv_heads, block_size, device):
    problem = make_problem(
        MIXES[mix],
        device=device,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        block_size=block_size,
        query_tile=query_tile(num_heads // num_kv_heads),
        contiguous=backend.contiguous,
        padding_tokens=2,
    )
    q_THD, cache, batch, _, scale = problem
    out = backend.forward(q_THD, cache, batch, block_size, scale)
    assert out.shape == q_THD.shape and out.isfinite().all()
    computed = slice(0, int(batch.query_start_loc[-1]))
    assert error(out[computed], Reference().forward(*problem)[computed]) < 1e-5


def test_backends_are_values():
    assert TritonPaged() == TritonPaged() != TritonContiguous()
    assert repr(TritonPaged()) == repr(TritonPaged())
