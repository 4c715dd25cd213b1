"""Where a monotone answer changes: the highest rate that meets a target, the smallest pool that does.

The answer comes from simulation and is noisy. Ask with common random numbers, the same seeds for every candidate: then
neighbouring candidates err alike, and what is left of the noise can move the bracket by little. Where it still makes
the answer change several times, the bracket encloses one of these changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kvsim.errors import ConfigError


@dataclass(frozen=True)
class Bracket:
    """What a search found.

    Attributes:
        low: the highest candidate known to lie below the threshold; None: not even the lowest allowed one does.
        high: the lowest candidate known to lie beyond it; None: not even the highest allowed one does, or the search
            ran out of evaluations before one did.
        answers: candidate -> whether it lies beyond, in the order asked.
    """

    low: float | None
    high: float | None
    answers: dict[float, bool]


def find_threshold(
    is_beyond: Callable[[float], bool],
    start: float,
    limits: tuple[float, float],
    *,
    growth: float = 1.5,
    width: float = 0.05,
    whole: bool = False,
    max_evaluations: int = 30,
) -> Bracket:
    """Bracket the threshold by geometric steps away from `start`, then halve the bracket in log space.

    Deterministic; no candidate is asked for twice.

    Args:
        is_beyond: False below the threshold, True beyond it. For a rate: the target is missed. For a size: it is met.
        start: first candidate; the nearer to the threshold the fewer evaluations.
        limits: lowest and highest candidate allowed, above 0.
        growth: factor between candidates until the answer changes; more than 1.
        width: relative width of the bracket that is narrow enough; above 0.
        whole: candidates are whole numbers; neighbours are then narrow enough too.
        max_evaluations: at most so many candidates; at least 1.

    Raises:
        ConfigError: arguments outside these bounds.
    """
    _check(start, limits, growth, width, max_evaluations)
    lowest, highest = limits
    if whole:
        start, lowest, highest = round(start), math.ceil(lowest), math.floor(highest)
    if lowest > highest:
        raise ConfigError(f"search limits {limits}: no whole number lies between them; widen them")
    answers: dict[float, bool] = {}
    low: float | None = None
    high: float | None = None
    candidate: float = min(max(start, lowest), highest)
    while len(answers) < max_evaluations:
        answers[candidate] = is_beyond(candidate)
        if answers[candidate]:
            high = candidate
        else:
            low = candidate
        if low is None:
            if candidate == lowest:
                break
            candidate = max(math.floor(candidate / growth) if whole else candidate / growth, lowest)
        elif high is None:
            if candidate == highest:
                break
            candidate = min(math.ceil(candidate * growth) if whole else candidate * growth, highest)
        elif high / low - 1 <= width or (whole and high - low <= 1):
            break
        else:
            middle = math.sqrt(low * high)
            candidate = min(max(round(middle), low + 1), high - 1) if whole else middle
    return Bracket(low, high, answers)


def _check(start: float, limits: tuple[float, float], growth: float, width: float, max_evaluations: int) -> None:
    lowest, highest = limits
    if not 0 < lowest <= highest < math.inf:
        raise ConfigError(f"search limits {limits}: must be finite, above 0 and in ascending order")
    if not (math.isfinite(start) and start > 0):
        raise ConfigError(f"search start {start!r}: must be finite and above 0")
    if not 1.01 <= growth < math.inf:
        raise ConfigError(f"search growth {growth!r}: must be finite and at least 1.01; give for example 1.5")
    if not 1e-6 <= width < math.inf:
        raise ConfigError(f"search width {width!r}: must be finite and at least 1e-6; give for example 0.05")
    if max_evaluations < 1:
        raise ConfigError(f"search max_evaluations {max_evaluations}: must be at least 1; give for example 30")


def log_linear(below: tuple[float, float], above: tuple[float, float], level: float) -> float:
    """The x at which y = `level`, with log y linear in x between the points (x, y); y is above 0.

    Raises:
        ValueError: the level does not lie between the two.
    """
    (x0, y0), (x1, y1) = below, above
    if not 0 < y0 <= level <= y1:
        raise ValueError(f"level {level} does not lie between {y0} and {y1}")
    if y0 == y1:
        return x0
    return x0 + (x1 - x0) * math.log(level / y0) / math.log(y1 / y0)
