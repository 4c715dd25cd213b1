import pytest
import torch

from gpu_backend.kernels import decode_attention as module
from gpu_backend.kernels.decode_attention import decode_attention, decode_attention_reference
from gpu_backend.kernels.decode_order import Order
from gpu_backend.kv_cache import LayerCache
from tests.gpu_backend.attention.problems import Problem, make_problem
from tests.gpu_backend.kernels.errors import error

# more tiles than one and fewer, ends within a tile and at its end, empty rows first, between and last
LENGTHS = ([70, 0, 33, 1], [150], [0, 1, 0, 16, 17, 0], [64, 64, 64])


def decode(problem: Problem, paged: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernel's output, poisoned before, and the reference's."""
    q_THD, cache, batch, block_size, scale = problem
    out, reference = (torch.full_like(q_THD, float("nan")) for _ in range(2))
    options = {"block_size": block_size, "scale": scale, "paged": paged}
    decode_attention(q_THD, cache, batch, out, **options)
    decode_attention_reference(q_THD, cache, batch, reference, **options)
    return out, reference


def singles(lengths: list[int]) -> list[tuple[int, int]]:
    return [(1, length) for length in lengths]


@pytest.mark.parametrize("paged", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_rows_of_any_length_equal_the_reference(lengths, paged, device):
    out, reference = decode(make_problem(singles(lengths), device=device, contiguous=not paged), paged)
    assert error(out, reference) < 1e-5


@pytest.mark.parametrize("block_size", [1, 2, 16, 256])
def test_block_sizes(block_size, device):
    out, reference = decode(make_problem(singles([70, 9, 130]), device=device, block_size=block_size))
    assert error(out, reference) < 1e-5


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim"),
    [(3, 3, 64), (5, 1, 80), (2, 2, 96), (32, 1, 16), (6, 2, 128), (1, 1, 256)],
)
def test_head_shapes(num_heads, num_kv_heads, head_dim, device):
    problem = make_problem(
        singles([40, 70]), device=device, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim
    )
    assert error(*decode(problem)) < 1e-5


def test_half_precision(device):
    assert error(*decode(make_problem(singles([70, 33]), device=device, dtype=torch.float16))) < 3e-3


def test_empty_rows_become_zero(device):
    out, _ = decode(make_problem(singles([0, 33, 0]), device=device))
    assert not out[[0, 2]].any() and out[1].isfinite().all()


def test_only_single_rows_are_written(device):
    out, _ = decode(make_problem([(1, 20), (1, 5), (7, 30)], device=device))
    assert out[:2].isfinite().all() and out[2:].isnan().all()


def test_large_scores_do_not_overflow(device):
    problem = make_problem(singles([70, 33]), device=device)
    out, reference = decode(problem._replace(scale=1e3))
    assert error(out, reference) < 1e-4


def launch_as(order: Order, monkeypatch):
    monkeypatch.setattr(module, "make_order", lambda *_: order)


@pytest.mark.parametrize("paged", [True, False])
@pytest.mark.parametrize(
    ("order", "merge_elements"),
    [(Order(5, 2, 4, 256), 8192), (Order(5, 1, 16, 16), 8192), (Order(5, 2, 8, 16), 1024), (Order(2, 1, 4, 64), 8192)],
)
def test_rows_in_pieces(order, merge_elements, paged, device, monkeypatch):
    launch_as(order, monkeypatch)
    monkeypatch.setattr(module, "MERGE_ELEMENTS", merge_elements)
    options = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 128, "contiguous": not paged}
    problem = make_problem(singles([70, 600, 1, 0, 513]), device=device, **options)
    for _ in range(2):  # the second finds the counters as the first leaves them
        assert error(*decode(problem, paged)) < 1e-5


def test_splits_that_no_row_needs(device):
    problem = make_problem(singles([70, 0]), device=device, num_kv_heads=1)
    problem = problem._replace(batch=problem.batch._replace(max_seq_len=8192))
    assert error(*decode(problem)) < 1e-5


@pytest.mark.parametrize("together", [1, 3, 6])
@pytest.mark.parametrize("long_rows", [1, 2, 4])
def test_any_order(long_rows, together, device, monkeypatch):
    launch_as(Order(long_rows, together, 1, 256), monkeypatch)
    problem = make_problem(singles([300, 33, 70, 5]), device=device, num_heads=12, num_kv_heads=6, head_dim=16)
    assert error(*decode(problem)) < 1e-5


def test_refusals(device):
    q_THD, cache, batch, _, scale = make_problem(singles([20]), device=device)
    out = torch.empty_like(q_THD)
    for message, arguments in {
        "head_dim=30": (q_THD[..., :30], LayerCache(*(pool[..., :30] for pool in cache)), out[..., :30], 16),
        "block_size=48": (q_THD, cache, out, 48),
        "contiguous": (q_THD.transpose(1, 2).contiguous().transpose(1, 2), cache, out, 16),
        "must agree": (q_THD.half(), cache, out, 16),
        "do not fit": (q_THD[:, :3], cache, out[:, :3], 16),
        "laid out like": (q_THD, LayerCache(cache.keys, cache.values.clone()), out, 16),
    }.items():
        q, pools, target, block_size = arguments
        with pytest.raises(ValueError, match=message):
            decode_attention(q, pools, batch, target, block_size=block_size, scale=scale, paged=True)
