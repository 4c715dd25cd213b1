"""Sizes that CUDA graphs are captured for; a step is padded to the next one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

MAX_ROWS = 512
MAX_TOKENS = 4096
TOKENS_PER_LONG_ROW = 8
"""A mixed bucket of T tokens has room for T // 8 rows of more than one token."""


class Buckets(NamedTuple):
    """Ascending sizes; all empty where nothing is captured.

    Attributes:
        decode: rows, of one token each.
        mixed: tokens of any other step.
        samples: rows of the LM head.
    """

    decode: tuple[int, ...] = ()
    mixed: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()


class Shape(NamedTuple):
    """Sizes of a batch: tokens, rows of one token at most, longer rows, query tiles, samples."""

    tokens: int
    singles: int
    longs: int
    tiles: int
    samples: int

    @property
    def rows(self) -> int:
        """All rows."""
        return self.singles + self.longs


def make_buckets(max_num_seqs: int | None, max_num_batched_tokens: int | None) -> Buckets:
    """The buckets of a server with these limits; None: no limit."""
    rows = (1, 2, 4, *range(8, 257, 8), *range(272, MAX_ROWS + 1, 16))
    tokens = (
        *range(16, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1152, 2049, 128),
        *range(2304, MAX_TOKENS + 1, 256),
    )
    decode = _up_to(rows, MAX_ROWS if max_num_seqs is None else max_num_seqs)
    mixed = _up_to(tokens, MAX_TOKENS if max_num_batched_tokens is None else max_num_batched_tokens)
    return Buckets(decode, mixed, decode)


def decode_shape(rows: int) -> Shape:
    """Of the decode bucket of so many rows."""
    return Shape(rows, rows, 0, 0, rows)


def mixed_shape(tokens: int, max_rows: int, query_tile: int) -> Shape:
    """Of the mixed bucket of so many tokens; `max_rows` is the largest number of rows captured."""
    singles = min(tokens, max_rows)
    longs = max(1, min(tokens // TOKENS_PER_LONG_ROW, max_rows))
    return Shape(tokens, singles, longs, tokens // query_tile + longs, singles)


def bucket_of(buckets: Sequence[int], size: int) -> int | None:
    """The smallest bucket that holds `size`; None beyond the largest."""
    at = bisect_left(buckets, size)
    return buckets[at] if at < len(buckets) else None


def _up_to(sizes: Sequence[int], limit: int) -> tuple[int, ...]:
    """The first ones, up to one that holds `limit`: servers with other limits pad to the same sizes."""
    return tuple(sizes[: bisect_left(sizes, limit) + 1])
