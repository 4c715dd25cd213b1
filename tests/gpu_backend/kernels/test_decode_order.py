import pytest

from gpu_backend.kernels.decode_order import MAX_SPLIT_ITEMS, Order, make_order


@pytest.mark.parametrize(
    ("num_heads", "num_rows", "max_seq_len", "order"),
    [
        (40, 128, 1024, Order(32, 2, 1, 1024)),
        (40, 32, 1024, Order(8, 8, 1, 1024)),
        (40, 24, 2048, Order(6, 10, 2, 1024)),
        (8, 256, 1024, Order(64, 1, 1, 1024)),
        (8, 32, 2048, Order(8, 8, 4, 512)),
        (8, 32, 32768, Order(8, 8, 4, 512)),
        (8, 16, 16384, Order(16, 8, 8, 256)),
        (8, 1, 32768, Order(1, 8, 16, 256)),
        (8, 1, 1000, Order(1, 8, 4, 256)),
        (1, 1, 100, Order(1, 1, 1, 256)),
        (9, 50, 100, Order(13, 3, 1, 900)),
    ],
)
def test_on_132_processors(num_heads, num_rows, max_seq_len, order):
    assert make_order(num_heads, num_rows, max_seq_len, 132) == order


@pytest.mark.parametrize("num_processors", [1, 4, 132, 1000])
def test_any_size_is_covered(num_processors):
    for num_heads in (1, 3, 8, 40, 71):
        for num_rows in (1, 2, 5, 64, 1000):
            order = make_order(num_heads, num_rows, 8192, num_processors)
            assert 1 <= order.long_rows <= num_rows and num_heads % order.heads_together == 0
            assert order.splits in (1, 2, 4, 8, 16)
            assert order.splits == 1 or num_heads * order.long_rows <= MAX_SPLIT_ITEMS
