"""Sequences as a scheduler would keep them, for the tests of pools."""

from __future__ import annotations

from kvsim.protocols import KVAllocator
from kvsim.request import Request, Sequence


def sequence(seq_id: int, prompt: int = 1) -> Sequence:
    return Sequence(seq_id, Request(seq_id, 0, prompt))


def hold(allocator: KVAllocator, seq: Sequence, num_tokens: int) -> bool:
    """Allocate and, if that worked, count the tokens as computed."""
    done = allocator.allocate(seq, num_tokens)
    if done:
        seq.num_computed_tokens = num_tokens
        seq.num_tokens = max(seq.num_tokens, num_tokens)
    return done


def holder(allocator: KVAllocator, seq_id: int, num_tokens: int) -> Sequence:
    """A new sequence with a prompt of `num_tokens`, all of them held."""
    seq = sequence(seq_id, num_tokens)
    assert hold(allocator, seq, num_tokens)
    return seq


def free_order(allocator: KVAllocator) -> list[int]:
    """The free blocks of a paged pool in the order in which they would be given out; they are gone afterwards."""
    count = allocator.num_free_blocks
    if not count:
        return []
    holder(allocator, -1, count * allocator.block_size)
    return list(allocator.tables[-1])
