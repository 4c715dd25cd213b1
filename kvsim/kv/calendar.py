"""`GrowthCalendar`: which block table takes a block in which round."""

from __future__ import annotations

from kvsim.plan import BlockTable


class GrowthCalendar:
    """Tables of sequences that all grow by one token a round, so that each takes a block every `block_size` rounds.

    Within a round tables come in the order in which they were added.
    """

    def __init__(self, block_size: int) -> None:
        self._mask = block_size - 1
        self._due: list[list[BlockTable]] = [[] for _ in range(block_size)]
        self._day: dict[int, int] = {}
        self._now = 0

    def add(self, seq_id: int, table: BlockTable, num_tokens: int) -> None:
        """A sequence joins at the end; its table holds `num_tokens` tokens."""
        room = -num_tokens
        self._day[seq_id] = day = (self._now + room) & self._mask
        self._due[day].append(table)

    def remove(self, seq_id: int, table: BlockTable) -> None:
        """A sequence leaves."""
        self._due[self._day.pop(seq_id)].remove(table)

    def rounds(self, count: int) -> tuple[list[BlockTable], list[int]]:
        """Pass `count` rounds: the tables that take a block, in order, and how many have after each round."""
        growing: list[BlockTable] = []
        taken: list[int] = []
        for day in range(self._now, self._now + count):
            growing += self._due[day & self._mask]
            taken.append(len(growing))
        self._now += count
        return growing, taken
