"""Where blocks come from: a FIFO free list (paged) or a buddy pool (contiguous); `Cache` puts tokens into them."""

from __future__ import annotations

from .records import Seq


def next_pow2(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    power = 1
    while power < number:
        power *= 2
    return power


class PagedPool:
    """Single blocks. The front of the free list is handed out; freed tables go to its tail, last block first."""

    def __init__(self, num_blocks: int) -> None:
        self.free = list(range(num_blocks))

    def largest(self) -> int:
        return len(self.free)

    def fits(self, num_blocks: int) -> bool:
        return num_blocks <= len(self.free)

    def take(self, num_blocks: int) -> list[int]:
        assert self.fits(num_blocks)
        return [self.free.pop(0) for _ in range(num_blocks)]

    def give(self, table: list[int]) -> None:
        for block in reversed(table):
            self.free.append(block)

    def free_blocks(self) -> list[int]:
        return list(self.free)


class BuddyPool:
    """Power-of-two chunks; `chunks` maps the start of every free chunk to its size, both in blocks."""

    def __init__(self, num_blocks: int, largest_chunk: int) -> None:
        self.largest_chunk = largest_chunk
        self.chunks: dict[int, int] = {}
        start, size = 0, largest_chunk
        while size >= 1:
            while start + size <= num_blocks:
                self.chunks[start] = size
                start += size
            size //= 2

    def largest(self) -> int:
        return max(self.chunks.values(), default=0)

    def fits(self, num_blocks: int) -> bool:
        return num_blocks <= self.largest()

    def take(self, num_blocks: int) -> list[int]:
        """The smallest chunk that holds `num_blocks`, at the lowest address, halved while the half does."""
        size, start = min((size, start) for start, size in self.chunks.items() if size >= num_blocks)
        del self.chunks[start]
        while size // 2 >= num_blocks:
            size //= 2
            self.chunks[start + size] = size
        return list(range(start, start + size))

    def give(self, table: list[int]) -> None:
        start, size = table[0], len(table)
        while size < self.largest_chunk and self.chunks.get(start ^ size) == size:
            del self.chunks[start ^ size]
            start = min(start, start ^ size)
            size *= 2
        self.chunks[start] = size

    def free_blocks(self) -> list[int]:
        return [block for start, size in self.chunks.items() for block in range(start, start + size)]


class Cache:
    """The KV cache token by token: `owner` says which request's token lies in a slot."""

    def __init__(self, pool: PagedPool | BuddyPool, num_blocks: int, block_size: int) -> None:
        self.pool = pool
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.owner: dict[int, int] = {}

    def blocks_for(self, num_tokens: int) -> int:
        blocks = 0
        while blocks * self.block_size < num_tokens:
            blocks += 1
        return blocks

    def new_blocks(self, seq: Seq, num_tokens: int) -> int:
        """Blocks `seq` lacks to hold `num_tokens`."""
        return max(0, self.blocks_for(num_tokens) - len(seq.table))

    def take(self, seq: Seq, num_blocks: int) -> None:
        if num_blocks:
            seq.table += self.pool.take(num_blocks)

    def write(self, seq: Seq) -> None:
        """Put the next known token of `seq` into its slot."""
        position = len(seq.slots)
        assert position < seq.known, "a token that nobody knows yet"
        slot = seq.table[position // self.block_size] * self.block_size + position % self.block_size
        assert slot not in self.owner, f"slot {slot} of request {self.owner[slot]} overwritten by {seq.request}"
        self.owner[slot] = seq.request
        seq.slots.append(slot)

    def drop(self, seq: Seq) -> None:
        for slot in seq.slots:
            assert self.owner.pop(slot) == seq.request
        self.pool.give(seq.table)
        seq.slots = []
        seq.table = []

    def check(self, holders: list[Seq]) -> None:
        """Every block is free or held by one sequence, never both."""
        blocks = self.pool.free_blocks()
        for seq in holders:
            blocks += seq.table
        assert sorted(blocks) == list(range(self.num_blocks)), "a block is lost or owned twice"
        assert len(self.owner) == sum(seq.computed for seq in holders)
