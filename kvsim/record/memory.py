"""The memory split of a step: what an allocator sees joined with output lengths that only the engine knows."""

from __future__ import annotations

from typing import NamedTuple

from kvsim.plan import PoolUsage


class Reservations(NamedTuple):
    """Sums over the holders of a pool that reserves, in tokens; R is a reservation, F a final length p + o.

    Attributes:
        granted: of R, everybody's.
        promised: of min(R, F), live holders'.
        internal: of max(0, R - F), live holders', and of R of finished members of a static batch.
        dead_tokens: of what those finished members still store.
    """

    granted: int
    promised: int
    internal: int
    dead_tokens: int


NOTHING_RESERVED = Reservations(0, 0, 0, 0)


class MemoryLedger:
    """Final lengths of the live sequences, and the members of a static batch that finished before it."""

    def __init__(self) -> None:
        self._final: dict[int, int] = {}
        self._dead: dict[int, int] = {}
        self._version = -1
        self._sums = NOTHING_RESERVED

    def expect(self, seq_id: int, final_tokens: int) -> None:
        """A sequence will have `final_tokens` = prompt + output at its end."""
        self._final[seq_id] = final_tokens

    def stop(self, seq_id: int, stored_tokens: int) -> None:
        """A sequence drew its last token; until it is forgotten it stores `stored_tokens` for nobody."""
        self._dead[seq_id] = stored_tokens
        self._version = -1

    def forget(self, seq_id: int) -> None:
        """A sequence ended and its memory was given back."""
        del self._final[seq_id]
        self._dead.pop(seq_id, None)
        self._version = -1

    def reservations(self, usage: PoolUsage) -> Reservations:
        """The sums for the pool as it is."""
        if not usage.grants:
            return NOTHING_RESERVED
        if usage.version != self._version:
            self._sums = self._add_up(usage)
            self._version = usage.version
        return self._sums

    def _add_up(self, usage: PoolUsage) -> Reservations:
        granted = promised = internal = 0
        for seq_id, grant in usage.grants.items():
            granted += grant
            final = 0 if seq_id in self._dead else self._final[seq_id]
            promised += min(grant, final)
            internal += max(0, grant - final)
        return Reservations(granted, promised, internal, sum(self._dead.values()))
