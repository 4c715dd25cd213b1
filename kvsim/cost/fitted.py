"""Cost model fitted to measured steps by `kvsim calibrate`: what was measured, and nothing of what should be."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kvsim.checks import check_flag, check_integer, check_number, shown
from kvsim.cost.shape import StepShape
from kvsim.errors import ConfigError, InvariantError
from kvsim.plan import IntArray, StepPlan
from kvsim.specs import ModelSpec

US = 1e3
LARGEST = 1e9
NEAR = 128
"""Tokens a decoding row on average, up to which part of reading them hides behind what a row costs anyway."""


class Place(NamedTuple):
    """Where a size lies among edges: `share` of the edge before number `edge`, the rest of it, `excess` beyond all."""

    edge: int
    share: float
    excess: int


def place(edges: Sequence[int], padded: bool, size: int) -> Place:
    """The edge that `size` is padded up to, or else the two that it lies between."""
    index = bisect_left(edges, size)
    if index == len(edges):
        return Place(index - 1, 0.0, size - edges[-1])
    if padded or not index:
        return Place(index, 0.0, 0)
    return Place(index, (edges[index] - size) / (edges[index] - edges[index - 1]), 0)


class Curve:
    """A quantity over a size: tokens, rows or samples.

    Args:
        edges: sizes, ascending.
        values: what it is at each.
        padded: sizes are rounded up to the next edge, as a CUDA graph of that size does; else interpolated.
        beyond: added for each unit of size above the last edge.

    Raises:
        ConfigError: edges that do not ascend, or a value that is no number of at least 0.
    """

    def __init__(self, edges: Sequence[int], values: Sequence[float], padded: bool, beyond: float) -> None:
        for name, items in {"edges": edges, "values": values}.items():
            if isinstance(items, str) or not isinstance(items, Sequence):
                raise ConfigError(f"cost: {name}={shown(items)}: must be a list of numbers")
        self.edges = [check_integer("cost: edge", edge) for edge in edges]
        self.values = [check_number("cost: value", value, 0.0, LARGEST) for value in values]
        self.padded = padded
        self.beyond = check_number("cost: beyond", beyond, 0.0, LARGEST)
        if len(self.edges) != len(self.values) or not self.edges:
            raise ConfigError(f"cost: {len(self.edges)} edges and {len(self.values)} values; give one value an edge")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ConfigError(f"cost: edges {shown(self.edges)} must ascend")
        check_flag("cost: padded", padded)

    def at(self, size: int) -> float:
        """The quantity at `size`."""
        index, share, excess = place(self.edges, self.padded, size)
        value = self.values[index]
        if share:
            value += share * (self.values[index - 1] - value)
        return value + excess * self.beyond


@dataclass(frozen=True)
class Rates:
    """What is proportional to something, none of it negative.

    Attributes:
        far_ns: a token of context beyond `NEAR` for each decoding row, on top of what every token costs.
        longest_ns: a token of the longest context among decodes.
        token_ns: a token beside or of a prompt, on top of its graph's time, which padding makes longer too; padding is
            all alike, attends to nothing, and draws so little power that clocks rise.
        pair_ns: a (query, key) pair of a prompt.
        key_ns: a token that a prompt's row sees.
        step_us, row_us, prompt_us: host time of a step, of each of its sequences, and more where one has a prompt.

    Raises:
        ConfigError: no number of at least 0.
    """

    far_ns: float
    longest_ns: float
    token_ns: float
    pair_ns: float
    key_ns: float
    step_us: float
    row_us: float
    prompt_us: float

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(f"cost.rates.{field.name}", getattr(self, field.name), 0.0, LARGEST)


class FittedCost:
    """Step time of one engine with one model on one device, as measured.

    A step lasts what its CUDA graph does, by padded tokens (`decode` where every row decodes, head included; else
    `mixed`, and `head` by sampled rows), longer with context, pairs and rows. All terms are added. Over the context
    of decodes time is convex, from latency of many short rows to bandwidth: one slope, steeper beyond `NEAR` a row.

    Not foreseen: the engine takes a larger graph than the tokens ask for where a step has more rows of several tokens
    than the graph has room for, one in eight tokens, so where prompts are shorter than that on average; and an idle row
    whose context is the longest.

    Args:
        model: of the run.
        model_name, num_parameters: of the model that was measured.
        decode, mixed, head: us over rows, tokens, samples.
        context: ns a token of context over decoding rows.
        rates: the other terms.

    Raises:
        ConfigError: another model was measured, a part is missing or of another kind, or a step would take no time.
    """

    def __init__(
        self,
        model: ModelSpec,
        model_name: str,
        num_parameters: int,
        decode: Curve,
        mixed: Curve,
        head: Curve,
        context: Curve,
        rates: Rates,
    ) -> None:
        if model.name != model_name:
            raise ConfigError(
                f"cost.model_name={model_name}: these step times are not those of model={model.name}; "
                "choose another cost, or measure it with kvsim calibrate"
            )
        if model.num_parameters != num_parameters:
            raise ConfigError(
                f"cost.num_parameters={num_parameters}: these step times are of a {model_name} of another shape, this "
                f"one has {model.num_parameters}; leave model.* as it was, or measure it with kvsim calibrate"
            )
        for name, curve in {"decode": decode, "mixed": mixed, "head": head, "context": context}.items():
            _check_part(name, curve, Curve)
        _check_part("rates", rates, Rates)
        self._decode = decode
        self._mixed = mixed
        self._head = head
        self._context = context
        self._rates = rates
        self._decodes: dict[tuple[int, int], tuple[float, float]] = {}
        host = rates.step_us + rates.row_us
        least = {"decode": min(decode.values) + host, "mixed": min(mixed.values) + host + rates.prompt_us}
        for name, step_us in least.items():
            if step_us * US < 1:
                raise ConfigError(
                    f"cost.{name}: a step would take {step_us * US:g} ns, not even 1; measure it with kvsim calibrate"
                )

    def decode_run(self, plan: StepPlan, repeats: int) -> IntArray:
        """[repeats] ns. In each repeat of a decode-only plan every row is one token longer.

        Raises:
            InvariantError: more than one repeat of a plan with prefill rows.
        """
        rows = len(plan.seq_ids)
        if plan.num_decodes != rows:
            if repeats > 1:
                raise InvariantError("INV-fast-forward", f"step {plan.step} has prefill rows and {repeats} repeats")
            return np.array([round(self.predict(StepShape.of(plan)))])
        key = (rows, plan.idle_rows)
        fixed, context_ns = self._decodes.get(key) or self._decodes.setdefault(key, self._decode_terms(*key))
        rates = self._rates
        context = plan.context_tokens + plan.idle_context_tokens
        near = NEAR * (rows + plan.idle_rows)
        longest = int(plan.context_lens[plan.context_lens.argmax()])
        if repeats == 1:
            total = context * context_ns + fixed + max(0, context - near) * rates.far_ns
            return np.array([round(total + longest * rates.longest_ns)])
        contexts = np.arange(context, context + rows * repeats, rows)
        durations = contexts * context_ns + fixed
        if contexts[-1] > near:
            durations += np.maximum(contexts - near, 0) * rates.far_ns
        if rates.longest_ns:
            durations += np.arange(longest, longest + repeats) * rates.longest_ns
        whole: IntArray = np.rint(durations, out=durations).astype(np.int64)
        return whole

    def predict(self, shape: StepShape) -> float:
        """Ns of a step of this shape."""
        rates = self._rates
        if shape.decodes_only:
            fixed, context_ns = self._decode_terms(shape.rows, shape.idle_rows)
            total = shape.context_tokens * context_ns + fixed
        else:
            host = rates.step_us + shape.rows * rates.row_us + rates.prompt_us
            total = (self._mixed.at(shape.all_tokens) + host) * US
            total += shape.tokens * rates.token_ns + shape.pairs * rates.pair_ns + shape.keys * rates.key_ns
            if shape.samples:
                total += self._head.at(shape.samples) * US
            if shape.single_rows:
                total += shape.context_tokens * self._context.at(shape.single_rows)
        return total + far_tokens(shape) * rates.far_ns + shape.longest * rates.longest_ns

    def _decode_terms(self, rows: int, idle_rows: int) -> tuple[float, float]:
        """(ns without reading the context, ns a token of context) of a step of decodes."""
        rows += idle_rows
        fixed = (self._decode.at(rows) + self._rates.step_us + rows * self._rates.row_us) * US
        return fixed, self._context.at(rows)


def _check_part(name: str, part: object, kind: type[Curve] | type[Rates]) -> None:
    if not isinstance(part, kind):
        target = f"{kind.__module__}.{kind.__name__}"
        raise ConfigError(f"cost.{name}={shown(part)}: must have _target_: {target}, as kvsim calibrate writes it")


def far_tokens(shape: StepShape) -> int:
    """Tokens of the decodes' context beyond `NEAR` a row."""
    return max(0, shape.context_tokens - NEAR * (shape.single_rows + shape.idle_rows))
