"""In which order the programs of a decode launch go through rows and heads, and which rows they share.

A program is a few tiles of memory traffic, so a launch is list scheduling: jobs as long as rows, on three places a
processor. What ends it must be short, and no job longer than a place's share.
"""

from __future__ import annotations

from typing import NamedTuple

MIN_CHUNK = 256  # tokens of a row for which another program pays, in a launch of few
MAX_CHUNK = 1024  # in a launch of many
MIN_SPLITS = 4  # of a long row at most, where rows are split at all
MAX_SPLITS = 16
MAX_SPLIT_ITEMS = 2048  # pairs of a row and a kv head in a launch that splits rows


class Order(NamedTuple):
    """What depends on the size of a launch alone, so that a CUDA graph fits any lengths.

    Attributes:
        long_rows: the first, longest rows; they come before the others and may be split.
        heads_together: both go through so many heads at a time; all rows of these should keep the processors busy.
        splits: how many programs share a long row at most, a power of two; an idle one is cheap.
        min_chunk: tokens of a row for which another program pays.
    """

    long_rows: int
    heads_together: int
    splits: int
    min_chunk: int


def make_order(num_heads: int, num_rows: int, max_seq_len: int, num_processors: int) -> Order:
    """For so many kv heads and rows, longest rows first."""
    items = num_heads * num_rows
    long_rows = num_rows if 2 * items < 3 * num_processors else -(-num_rows // 4)
    limit = max(1, 2 * num_processors // num_rows)
    together = max(count for count in range(1, min(limit, num_heads) + 1) if num_heads % count == 0)
    min_chunk = min(max(MIN_CHUNK, 2 * items), MAX_CHUNK)
    if items >= min(12 * num_processors, MAX_SPLIT_ITEMS):
        return Order(long_rows, together, 1, min_chunk)
    useful = min(MAX_SPLITS, max(MIN_SPLITS, 8 * num_processors // items), -(-max_seq_len // min_chunk))
    return Order(long_rows, together, 1 << max(useful, 1).bit_length() - 1, min_chunk)
