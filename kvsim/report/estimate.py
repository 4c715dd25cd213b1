"""A metric over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t, two-sided 95 %, for 1 to 9 degrees of freedom; above, an expansion is right to three decimals."""

FEWEST_FOR_INTERVAL = 3


class Estimate(NamedTuple):
    """Mean and spread: the 95 % confidence interval of the mean from three seeds on, least and greatest of two.

    Attributes:
        values: one a seed, those that are defined.
        num_seeds: how many there are, defined or not.
    """

    mean: float
    low: float
    high: float
    values: tuple[float, ...]
    num_seeds: int

    @property
    def is_partial(self) -> bool:
        """Whether a seed does not define it."""
        return len(self.values) < self.num_seeds

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Estimate | None:
        """The estimate from one value a seed; None where no seed defines any."""
        defined = tuple(value for value in values if value is not None)
        if not defined:
            return None
        mean = fmean(defined) if len(defined) > 1 else defined[0]
        if len(defined) < FEWEST_FOR_INTERVAL:
            return cls(mean, min(defined), max(defined), defined, len(values))
        half = student_t(len(defined) - 1) * stdev(defined) / math.sqrt(len(defined))
        return cls(mean, mean - half, mean + half, defined, len(values))


def student_t(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's distribution (Abramowitz and Stegun 26.7.5 above the table)."""
    if freedom <= len(T_95):
        return T_95[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    first = (z**3 + z) / (4 * freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return z + first + second + third
