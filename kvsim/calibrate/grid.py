"""The grid: which steps are measured, so that every bucket and every slope of the cost model shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kvsim.calibrate.design import LADDER
from kvsim.calibrate.plans import PlanMaker, Row
from kvsim.calibrate.points import Buckets
from kvsim.plan import StepPlan

CONTEXTS = (16, 128, 512, 1024, 2048, 4096, 8192, 16384)
"""Levels of the decodes' contexts, as far as the model and the pool go."""
BEYOND = (1.25, 1.5, 2.0)
"""Multiples of the largest bucket that are measured too."""
PROMPT = 200
"""Mean tokens of many prompts in a step."""
PADDED_BATCHES = 12


class Limits(NamedTuple):
    """The largest step of the grid: sequences, new tokens, tokens a sequence."""

    rows: int
    tokens: int
    length: int


class Step(NamedTuple):
    """A plan of the grid and what it is to show."""

    kind: str
    plan: StepPlan


class Grid:
    """All steps to measure.

    Args:
        maker: makes their plans.
        buckets: of the engine; where it does not pad, a ladder of sizes.
        limits: of a step.
        rng: draws lengths.
    """

    def __init__(self, maker: PlanMaker, buckets: Buckets, limits: Limits, rng: np.random.Generator) -> None:
        self._maker = maker
        self._buckets = buckets
        self._limits = limits
        self._rng = rng

    def steps(self) -> list[Step]:
        """Every step; those that the pool cannot hold are left out."""
        kinds = {"decode": self._decodes(), "prefill": self._prompts(), "mixed": self._mixed()}
        steps = [
            Step(kind, self._maker.make(rows)) for kind, drawn in kinds.items() for rows in drawn if self._fits(rows)
        ]
        steps += [Step("padded", self._maker.make(rows, padding_tokens=padding)) for rows, padding in self._padded()]
        return steps

    def _fits(self, rows: Sequence[Row]) -> bool:
        return len(rows) <= self._limits.rows and self._maker.fits(rows)

    def _edges(self, buckets: Sequence[int], largest: int) -> Iterator[tuple[int, int]]:
        """The sizes of every bucket, smallest and largest; then those beyond the last bucket."""
        low = 0
        for edge in buckets or LADDER:
            if edge > largest:
                return
            yield low + 1, edge
            low = edge
        for size in (int(low * factor) for factor in BEYOND if low * factor <= largest):
            yield size, size

    def _size(self, low: int, high: int) -> int:
        """A full bucket or one that is not, as often."""
        return high if self._rng.random() < 0.5 else int(self._rng.integers(low, high + 1))

    def _decodes(self) -> Iterator[list[Row]]:
        """Three levels of equal contexts for every bucket, then ragged ones, twice."""
        edges = sorted({*self._buckets.decode, *self._buckets.samples})
        levels = [level for level in CONTEXTS if level <= self._limits.length]
        for low, rows in self._edges(edges, self._limits.rows):
            most = self._maker.num_blocks // rows * self._maker.block_size
            fitting = [level for level in levels if level <= most] or [2]
            for level in (fitting[0], fitting[len(fitting) // 2], fitting[-1]):
                yield [Row(1, level)] * rows
            for _ in range(2):
                yield self._ragged(self._size(low, rows))

    def _ragged(self, rows: int) -> list[Row]:
        """Decodes of contexts as different as in a server: log-uniform up to a level."""
        most = min(self._limits.length, self._maker.num_blocks // rows * self._maker.block_size)
        top = float(self._rng.uniform(0.3, 1.0)) * np.log(max(most, 3))
        contexts = np.exp(self._rng.uniform(min(3.0, 0.5 * top), top, rows)).astype(np.int64)
        return [Row(1, max(2, context)) for context in contexts.tolist()]

    def _prompts(self) -> Iterator[list[Row]]:
        """Few long prompts, many short ones, and a chunk late in its prompt, for every bucket of tokens."""
        for low, high in self._edges(self._buckets.mixed, self._limits.tokens):
            tokens = max(2, self._size(low, high))
            longest = min(self._limits.length, tokens)
            full, rest = divmod(tokens, longest)
            yield [Row(new, new) for new in [longest] * full + [rest] * bool(rest)]
            yield [Row(new, new) for new in self._split(max(2, self._size(low, high)))]
            if high < self._limits.length:
                yield [self._chunk(max(2, self._size(low, high)))]

    def _mixed(self) -> Iterator[list[Row]]:
        """Decodes beside prompts or a chunk, twice for every bucket of tokens."""
        for low, high in self._edges(self._buckets.mixed, self._limits.tokens):
            for _ in range(2):
                tokens = max(3, self._size(low, high))
                decodes = int(self._rng.integers(1, max(2, min(3 * self._limits.rows // 4, tokens - 1))))
                left = tokens - decodes
                prompts = [Row(new, new) for new in self._split(left)]
                if left < self._limits.length and self._rng.random() < 0.5:
                    prompts = [self._chunk(left)]
                yield self._ragged(decodes) + prompts

    def _split(self, tokens: int) -> list[int]:
        """Lengths of prompts that make `tokens` together, no longer than a sequence may be."""
        lengths: list[int] = []
        while tokens > 0:
            drawn = max(2, int(self._rng.exponential(PROMPT)))
            lengths.append(min(drawn, tokens, self._limits.length))
            tokens -= lengths[-1]
        return lengths

    def _chunk(self, tokens: int) -> Row:
        """A part of a prompt behind others, its last or not."""
        before = int(self._rng.integers(0, self._limits.length - tokens))
        return Row(tokens, before + tokens, int(self._rng.random() < 0.5))

    def _padded(self) -> Iterator[tuple[list[Row], int]]:
        """Static batches: prompts padded to the longest of them."""
        for _ in range(PADDED_BATCHES):
            rows = int(self._rng.integers(2, min(64, self._limits.rows) + 1)) if self._limits.rows > 1 else 1
            most = min(self._limits.length, self._limits.tokens // rows)
            lengths = np.exp(self._rng.uniform(1.0, np.log(max(most, 3)), rows)).astype(np.int64).clip(2, most).tolist()
            padding = max(lengths) * rows - sum(lengths)
            batch = [Row(length, length) for length in lengths]
            if most >= 2 and self._fits(batch):
                yield batch, padding
