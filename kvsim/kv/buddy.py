"""A buddy pool with real addresses: power-of-two chunks, split by halves, merged with their buddy."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from kvsim.errors import InvariantError


class BuddyPool:
    """`num_blocks` blocks cut from address 0 into chunks of at most `largest` blocks, descending.

    Args:
        num_blocks: blocks of the pool, any number; what is no multiple of `largest` becomes smaller chunks.
        largest: blocks of the largest chunk, a power of two.
    """

    def __init__(self, num_blocks: int, largest: int) -> None:
        self._largest = largest
        self._free: dict[int, list[int]] = {}
        size = 1
        while size <= largest:
            self._free[size] = []
            size *= 2
        start, size = 0, largest
        while start < num_blocks:
            while size > num_blocks - start:
                size //= 2
            self._free[size].append(start)
            start += size
        self.num_free_blocks = num_blocks

    @property
    def largest_free(self) -> int:
        """Blocks of the largest free chunk; 0 if none is free."""
        return max((size for size, starts in self._free.items() if starts), default=0)

    def fits(self, size: int) -> bool:
        """Whether a chunk of `size` blocks (a power of two) could be taken."""
        return any(starts and have >= size for have, starts in self._free.items())

    def take(self, size: int) -> int | None:
        """Address of a chunk of `size` blocks: the smallest that serves, lowest address first; None if none does."""
        have = size
        while have <= self._largest and not self._free[have]:
            have *= 2
        if have > self._largest:
            return None
        start = self._free[have].pop(0)
        while have > size:
            have //= 2
            insort(self._free[have], start + have)
        self.num_free_blocks -= size
        return start

    def give_back(self, start: int, size: int) -> None:
        """Free the chunk at `start`, merging it with its buddy as long as that is free and as large."""
        self.num_free_blocks += size
        while size < self._largest and self._remove(start ^ size, size):
            start &= ~size
            size *= 2
        if self._index(start, size) is not None:
            raise InvariantError("INV-blocks", f"the chunk of {size} blocks at {start} is freed twice")
        insort(self._free[size], start)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Free chunks as (start, blocks), by size then address."""
        return ((start, size) for size, starts in self._free.items() for start in starts)

    def _index(self, start: int, size: int) -> int | None:
        starts = self._free[size]
        at = bisect_left(starts, start)
        return at if at < len(starts) and starts[at] == start else None

    def _remove(self, start: int, size: int) -> bool:
        at = self._index(start, size)
        if at is None:
            return False
        del self._free[size][at]
        return True
