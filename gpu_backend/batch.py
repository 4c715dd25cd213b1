"""`Batch`: one step as the model and its attention see it, in device memory."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """The tokens of one step, flat, and where the KV of each row lies. Every size is padded to that of a bucket.

    Rows of one token come first, longest context first, so row r < `num_single_rows` is token r and the last programs
    of a decode kernel are short ones; longer rows follow, their tokens one after the other.
    Legend: T tokens, R rows, P pages of the widest table, Q query tiles, S samples.

    Attributes:
        input_ids: [T] int32; 0 in padding.
        positions: [T] int32 of each token in its sequence (rotary, learned positions).
        slot_mapping: [T] int64 slot that takes the token's key and value; -1: nothing is written.
        query_start_loc: [R + 1] int32 first token of each row; a padding row is empty.
        seq_lens: [R] int32 tokens visible to the row's last token, itself included; 0 in a padding row. Token i of a
            row of n sees the first ``seq_lens - n + i + 1``.
        block_tables: [R, P] int32 blocks in logical order; entries beyond ``ceil(seq_lens / block_size)`` are
            undefined. In a contiguous pool the first entry says all: the row begins at slot ``first * block_size``.
        query_tiles: [Q, 2] int32 (row, first token within the row) of each tile of `query_tile` tokens of the rows
            with more than one; row -1: no tile.
        sample_tokens: [S] int64 tokens after which a token is drawn; padding repeats 0.
        query_tile: tokens a tile.
        num_single_rows: rows, padding included, that have one token or none: what decode attention has to look at.
        max_seq_len: bound on `seq_lens`.
    """

    input_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    query_start_loc: Tensor
    seq_lens: Tensor
    block_tables: Tensor
    query_tiles: Tensor
    sample_tokens: Tensor
    query_tile: int
    num_single_rows: int
    max_seq_len: int
