"""`check_integrity` finds what was planted; constructors refuse what makes no pool."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvsim.errors import ConfigError, InvariantError
from kvsim.kv.base import AllocatorBase
from kvsim.kv.contiguous import ReserveMax, ReservePow2
from kvsim.kv.paged import PagedAllocator
from kvsim.plan import BlockTable
from kvsim.protocols import KVAllocator
from tests.kv.holders import holder


class Four:
    def num_output_tokens(self, request_id: int) -> int:
        return 4


def paged() -> KVAllocator:
    return PagedAllocator(16, 4, max_model_len=32)


def buddies() -> KVAllocator:
    return ReservePow2(16, 4, max_model_len=32, oracle=Four())


POOLS = pytest.mark.parametrize("make", [paged, buddies])
Tables = dict[int, BlockTable]


def share(tables: Tables) -> None:
    tables[1][0] = tables[0][1]


def repeat(tables: Tables) -> None:
    tables[0][1] = tables[0][0]


def lose(tables: Tables) -> None:
    tables[0].pop()


def forget(tables: Tables) -> None:
    del tables[0]


def invent(tables: Tables) -> None:
    tables[0].append(16)


def negate(tables: Tables) -> None:
    tables[0][0] = -1


def grab(tables: Tables) -> None:
    tables[1].append(15)


@POOLS
@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (share, r"block 1 is owned by sequences \[0, 1\]"),
        (repeat, r"block 0 is owned by sequences \[0, 0\]"),
        (lose, r"block \d is owned by sequences \[\] and free 0 times"),
        (forget, r"block 0 is owned by sequences \[\] and free 0 times"),
        (invent, r"block 16 does not exist \(pool of 16\)"),
        (negate, r"block -1 does not exist"),
        (grab, r"block 15 is owned by sequences \[1\] and free 1 times"),
    ],
)
def test_planted_corruption_is_found(make: Callable[[], Any], plant: Callable[[Tables], None], found: str) -> None:
    pool = make()
    holder(pool, 0, 8)
    holder(pool, 1, 8)
    pool.check_integrity()
    plant(pool.tables)
    with pytest.raises(InvariantError, match=f"INV-blocks: {found}") as error:
        pool.check_integrity()
    assert error.value.name == "INV-blocks"


@POOLS
def test_a_sequence_that_lies_about_its_tokens_is_found(make: Callable[[], KVAllocator]) -> None:
    pool = make()
    seq = holder(pool, 0, 8)
    holder(pool, 1, 4)
    seq.num_computed_tokens = 13
    pool.free(seq)
    with pytest.raises(InvariantError, match="INV-tokens: -1 tokens resident"):
        pool.check_integrity()


@POOLS
def test_tokens_left_behind_are_found(make: Callable[[], KVAllocator]) -> None:
    pool = make()
    seq = holder(pool, 0, 8)
    seq.num_computed_tokens = 7
    pool.free(seq)
    with pytest.raises(InvariantError, match="INV-tokens: 1 tokens resident in 0 held blocks"):
        pool.check_integrity()


def test_a_reserved_table_that_is_no_chunk_is_found() -> None:
    pool: Any = buddies()
    holder(pool, 0, 8)
    holder(pool, 1, 8)
    pool.tables[0][1], pool.tables[1][1] = pool.tables[1][1], pool.tables[0][1]
    with pytest.raises(InvariantError, match="INV-blocks"):
        pool.check_integrity()


def test_a_block_twice_in_the_free_queue_is_found() -> None:
    pool = PagedAllocator(16, 4, max_model_len=32)
    seq = holder(pool, 0, 8)
    repeat(pool.tables)  # type: ignore[arg-type]
    pool.free(seq)
    with pytest.raises(InvariantError, match=r"INV-blocks: block 0 is owned by sequences \[\] and free 2 times"):
        pool.check_integrity()


def test_a_counter_that_drifted_is_found() -> None:
    pool = AllocatorBase(4, 4, max_model_len=16)
    pool.tables[0] = [0, 1]  # type: ignore[index]
    with pytest.raises(InvariantError, match="INV-blocks: 0 blocks counted as held, tables name 2"):
        pool._check_books(np.array([2, 3]))


class TestConstructors:
    @pytest.mark.parametrize("rule", [PagedAllocator, ReserveMax])
    @pytest.mark.parametrize("block_size", [24, 0, -16, 512, 3, True, "16", 16.0, None])
    def test_block_size(self, rule: Callable[..., object], block_size: object) -> None:
        with pytest.raises(ConfigError, match=f"kv.block_size={block_size!r}: must be a power of two") as error:
            rule(100, block_size, max_model_len=2048)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("rule", [PagedAllocator, ReserveMax])
    @pytest.mark.parametrize("num_blocks", [0, -1, True, 1.5, math.nan, "100", None, (1 << 31) + 1])
    def test_num_blocks(self, rule: Callable[..., object], num_blocks: object) -> None:
        with pytest.raises(
            ConfigError, match=re.escape(f"kv.num_blocks={num_blocks!r}: must be a whole number from 1 to")
        ) as error:
            rule(num_blocks, 16, max_model_len=2048)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("watermark", [math.nan, -0.01, 1, 1.0, 2, math.inf, True, "0.01", None])
    def test_watermark(self, watermark: object) -> None:
        with pytest.raises(ConfigError, match=f"allocator.watermark={watermark!r}: must be a fraction"):
            PagedAllocator(100, 16, max_model_len=2048, watermark=watermark)  # type: ignore[arg-type]

    @pytest.mark.parametrize("block_size", [1, 2, 4, 8, 16, 32, 64, 128, 256])
    def test_every_power_of_two_up_to_256(self, block_size: int) -> None:
        PagedAllocator(10, block_size, max_model_len=2048).check_integrity()
        ReserveMax(10, block_size, max_model_len=2048).check_integrity()

    def test_buddies_need_blocks_that_divide_the_model_length(self) -> None:
        with pytest.raises(ConfigError, match="kv.block_size=16: must divide max_model_len=2040"):
            ReserveMax(100, 16, max_model_len=2040)
        PagedAllocator(100, 16, max_model_len=2040)
