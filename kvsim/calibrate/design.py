"""`Design`: the columns of the linear model that `FittedCost` is, for shapes of steps, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import NamedTuple

import numpy as np

from kvsim.calibrate.points import Buckets
from kvsim.cost.fitted import US, Curve, Rates, far_tokens, place
from kvsim.cost.shape import StepShape
from kvsim.latency import FloatArray

SMOOTH = 1e-3
"""Weight of a curve's smoothness against the relative error of one point: it decides where nothing was measured."""

_DECODES = tuple(round(2 ** (k / 4)) for k in range(8, 53))
LADDER = (1, 2, 3, *_DECODES)
"""Edges where the engine does not pad: four an octave, up to 8,192."""
CONTEXT = (1, 8, 64)
HEAD = (1,)
"""Edges of what changes little over rows, and in a straight line over samples: what was measured tells no more."""


class CurveColumns(NamedTuple):
    """Where a curve stands among the columns: its edges from `start` on, then what lies beyond."""

    edges: tuple[int, ...]
    padded: bool
    start: int

    @property
    def beyond(self) -> int:
        """Column of the slope above the last edge."""
        return self.start + len(self.edges)

    def fill(self, row: FloatArray, size: int, amount: float) -> None:
        """Let `amount` times the curve's value at `size` be in `row`."""
        index, share, excess = place(self.edges, self.padded, size)
        row[self.start + index] += amount * (1 - share)
        if share:
            row[self.start + index - 1] += amount * share
        row[self.beyond] += amount * excess

    def curve(self, x: FloatArray) -> Curve:
        """The curve that coefficients `x` give."""
        values = [rounded(value) for value in x[self.start : self.beyond].tolist()]
        return Curve(self.edges, values, self.padded, rounded(float(x[self.beyond])))


class Design:
    """Columns of the model: curves over the engine's buckets, or over a ladder where it has none, and rates.

    Args:
        buckets: of the engine.
        shapes: steps that were measured; no edge lies beyond them.
    """

    def __init__(self, buckets: Buckets, shapes: Sequence[StepShape]) -> None:
        decodes = [shape.all_tokens for shape in shapes if shape.decodes_only]
        others = [shape for shape in shapes if not shape.decodes_only]
        # a decode's head has buckets of its own, so their edges are steps of its curve too
        both = tuple(sorted({*buckets.decode, *buckets.samples})) if buckets.decode else ()
        self._width = 0
        self._curves = {
            "decode": self._curve(both, decodes),
            "mixed": self._curve(buckets.mixed, [shape.all_tokens for shape in others]),
            "head": self._columns(HEAD, False),
            "context": self._columns(CONTEXT, False),
        }
        self._rates = {field.name: self._width + index for index, field in enumerate(fields(Rates))}
        self._width += len(self._rates)

    def _curve(self, buckets: tuple[int, ...], sizes: Sequence[int]) -> CurveColumns:
        largest = max(sizes, default=1)
        edges = buckets or LADDER
        last = next((index for index, edge in enumerate(edges) if edge >= largest), len(edges) - 1)
        return self._columns(edges[: last + 1], bool(buckets))

    def _columns(self, edges: tuple[int, ...], padded: bool) -> CurveColumns:
        columns = CurveColumns(edges, padded, self._width)
        self._width = columns.beyond + 1
        return columns

    def matrix(self, shapes: Sequence[StepShape]) -> FloatArray:
        """[shapes, columns] of device time in us."""
        rows = np.zeros((len(shapes), self._width))
        for row, shape in zip(rows, shapes, strict=True):
            self._fill(row, shape)
        return rows

    def _fill(self, row: FloatArray, shape: StepShape) -> None:
        curves, rates = self._curves, self._rates
        row[rates["row_us"]] = shape.rows + shape.idle_rows
        row[rates["far_ns"]] = far_tokens(shape) / US
        row[rates["longest_ns"]] = shape.longest / US
        if shape.decodes_only:
            curves["decode"].fill(row, shape.all_tokens, 1)
            curves["context"].fill(row, shape.all_tokens, shape.context_tokens / US)
            return
        curves["mixed"].fill(row, shape.all_tokens, 1)
        if shape.samples:
            curves["head"].fill(row, shape.samples, 1)
        if shape.single_rows:
            curves["context"].fill(row, shape.single_rows, shape.context_tokens / US)
        row[rates["token_ns"]] = shape.tokens / US
        row[rates["pair_ns"]] = shape.pairs / US
        row[rates["key_ns"]] = shape.keys / US

    def smoothness(self, scale: dict[str, float]) -> FloatArray:
        """[rows, columns] that are 0 where curves are straight, and go on beyond their end as in their upper half.

        Args:
            scale: typical value of each curve.
        """
        rows = []
        for name, columns in self._curves.items():
            weight = SMOOTH / (scale[name] or 1.0)
            edges, start = columns.edges, columns.start
            for index in range(1, len(edges) - 1):
                share = (edges[index + 1] - edges[index]) / (edges[index + 1] - edges[index - 1])
                row = np.zeros(self._width)
                row[start + index - 1 : start + index + 2] = -share * weight, weight, (share - 1) * weight
                rows.append(row)
            if len(edges) > 1:
                row = np.zeros(self._width)
                half = (len(edges) - 1) // 2
                row[[start + half, columns.beyond - 1]] = -weight, weight
                row[columns.beyond] = -(edges[-1] - edges[half]) * weight
                rows.append(row)
        return np.array(rows).reshape(-1, self._width)

    def means(self, x: FloatArray) -> dict[str, float]:
        """Mean value of each curve under coefficients `x`."""
        return {name: float(x[columns.start : columns.beyond].mean()) for name, columns in self._curves.items()}

    def profile(self, x: FloatArray, host: Rates) -> tuple[dict[str, Curve], Rates]:
        """Curves and rates of a `FittedCost` with these coefficients, the host's of `host` added."""
        found = {name: float(x[column]) for name, column in self._rates.items()}
        added = {name: rounded(found[name] + value) for name, value in asdict(host).items()}
        return {name: columns.curve(x) for name, columns in self._curves.items()}, Rates(**added)


def rounded(value: float) -> float:
    """To four significant digits."""
    return float(f"{value:.4g}")
