"""Length models: where (input, output) token counts come from. Pairs are drawn i.i.d. with replacement."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kvsim.checks import check_choice, check_number
from kvsim.plan import IntArray
from kvsim.workload.base import MAX_TOKENS

FloatArray = NDArray[np.float64]

DISTRIBUTIONS = ("fixed", "uniform", "lognormal")


class LengthModel(Protocol):
    """A joint distribution of prompt and output lengths."""

    def draw(self, rng: np.random.Generator, count: int) -> tuple[IntArray, IntArray]:
        """[count] prompt lengths and [count] output lengths, tokens, each at least 1."""
        ...


class BinnedLengths:
    """An embedded length model: counts of (input, output) bins and the mean of each input and output bin.

    A pair falls into a bin by its count; within it, each length is drawn from the two-piece uniform density
    over the bin's integers that has the bin's mean. Bins of small lengths are one token wide.

    Args:
        name: one of `embedded_models()`.

    Raises:
        ConfigError: unknown name.
    """

    def __init__(self, name: str) -> None:
        model = read_model(check_choice("workload.lengths.name", name, embedded_models()))
        edges = np.array(model["edges"], dtype=np.float64)
        self._bins: IntArray = np.array(model["bins"], dtype=np.int64)
        self.name = name
        self._max_total = int(model["max_total"])
        self._cumulative: IntArray = np.cumsum(self._bins[:, 2])
        self._inputs = _pieces(edges, np.array(model["input_means"]))
        self._outputs = _pieces(edges, np.array(model["output_means"]))

    def draw(self, rng: np.random.Generator, count: int) -> tuple[IntArray, IntArray]:
        """See `LengthModel`; input + output never exceeds the limit of the model's rule, each is at least 1."""
        chosen = np.searchsorted(self._cumulative, rng.integers(self._cumulative[-1], size=count), side="right")
        inputs = _within(self._inputs[self._bins[chosen, 0]], rng.random(count))
        outputs = _within(self._outputs[self._bins[chosen, 1]], rng.random(count))
        inputs = np.minimum(inputs, self._max_total - 1)
        return inputs, np.minimum(outputs, self._max_total - inputs)


class SyntheticLengths:
    """Independent input and output lengths of one family with given means, tokens.

    Args:
        distribution: `fixed`; `uniform` on 1 .. 2 mean - 1; `lognormal` with coefficient of variation `cv`.
        input_mean, output_mean: at least 1.
        cv: used by `lognormal` alone.

    Raises:
        ConfigError: unknown distribution or a value out of range.
    """

    def __init__(self, distribution: str, input_mean: float, output_mean: float, cv: float = 1.0) -> None:
        self.distribution = check_choice("workload.lengths.distribution", distribution, DISTRIBUTIONS)
        self._means = tuple(
            check_number(f"workload.lengths.{name}", mean, 1, MAX_TOKENS / 10, "give a mean number of tokens")
            for name, mean in (("input_mean", input_mean), ("output_mean", output_mean))
        )
        self._cv = check_number("workload.lengths.cv", cv, 1e-3, 100.0, "give for example workload.lengths.cv=1")

    def draw(self, rng: np.random.Generator, count: int) -> tuple[IntArray, IntArray]:
        """See `LengthModel`."""
        inputs, outputs = (self._draw_one(mean, rng, count) for mean in self._means)
        return inputs, outputs

    def _draw_one(self, mean: float, rng: np.random.Generator, count: int) -> IntArray:
        if self.distribution == "fixed":
            values = np.full(count, mean)
        elif self.distribution == "uniform":
            values = 0.5 + (2 * mean - 1) * rng.random(count)
        else:
            variance = np.log1p(self._cv * self._cv)
            values = rng.lognormal(np.log(mean) - variance / 2, np.sqrt(variance), count)
        return _to_tokens(values)


def embedded_models() -> list[str]:
    """Names of the length models that ship with kvsim."""
    files = (entry.name for entry in resources.files("kvsim.traces").iterdir())
    return sorted(name.removesuffix(".json") for name in files if name.endswith(".json"))


@cache
def read_model(name: str) -> dict[str, Any]:
    """An embedded model's file: provenance, figures of its source, edges and bins."""
    model: dict[str, Any] = json.loads((resources.files("kvsim.traces") / f"{name}.json").read_text(encoding="utf-8"))
    return model


def _pieces(edges: FloatArray, mean: FloatArray) -> FloatArray:
    """[bins, 4] low end, mean, high end, and the weight below the mean which makes the mean right."""
    low, high = edges[:-1] - 0.5, edges[1:] - 0.5
    return np.stack([low, mean, high, (high - mean) / (high - low)], axis=1)


def _within(pieces: FloatArray, uniform: FloatArray) -> IntArray:
    """[count] integers: `uniform` through the inverse of the two-piece distribution function."""
    low, mean, high, weight = pieces.T
    below = low + (mean - low) * uniform / weight
    above = high - (high - mean) * (1.0 - uniform) / (1.0 - weight)
    return _to_tokens(np.where(uniform < weight, below, above))


def _to_tokens(values: FloatArray) -> IntArray:
    return np.clip(np.rint(values), 1, MAX_TOKENS).astype(np.int64)
