"""Arrival processes: when requests come. All are a renewal process of unit-mean gaps, scaled by the rate."""

from __future__ import annotations

import numpy as np

from kvsim.checks import check_choice, check_number
from kvsim.errors import ConfigError
from kvsim.plan import UNBOUNDED, IntArray
from kvsim.units import NS_PER_S

PROCESSES = ("poisson", "gamma", "constant", "all_at_once")
MIN_RATE, MAX_RATE = 1e-6, 1e6


class ArrivalProcess:
    """Ascending arrival instants in integer nanoseconds, without end. The first comes one gap after 0.

    The same generator state at another rate gives the same arrivals on a stretched clock.

    Args:
        process: `poisson`, `gamma` (gaps of coefficient of variation `cv`), `constant` (k / rate), or
            `all_at_once` (everything at 0, which takes no rate).
        rate: mean requests per second.
        cv: used by `gamma` alone; 1 is Poisson, above is burstier.
        rng: the stream "arrivals".

    Raises:
        ConfigError: unknown process, or a rate or cv that is missing, out of range or out of place.
    """

    def __init__(self, process: str, rate: float | None, cv: float, rng: np.random.Generator) -> None:
        self.process = check_choice("workload.arrivals", process, PROCESSES)
        if process == "all_at_once":
            if rate is not None:
                raise ConfigError(f"rate={rate!r}: workload.arrivals=all_at_once has no rate; drop one of the two")
            self._gap_ns = 0.0
        elif rate is None:
            raise ConfigError(
                f"rate is not set: workload.arrivals={process} needs requests per second; "
                "give for example rate=2, or workload.arrivals=all_at_once"
            )
        else:
            per_second = check_number("rate", rate, MIN_RATE, MAX_RATE, "give requests per second, for example rate=2")
            self._gap_ns = NS_PER_S / per_second
        self._cv = check_number("workload.cv", cv, 1e-3, 100.0, "give for example workload.cv=1")
        self._rng = rng
        self._elapsed = 0.0

    def take(self, count: int) -> IntArray:
        """[count] the next instants, ns."""
        instants = self._elapsed + np.cumsum(self._unit_gaps(count))
        self._elapsed = float(instants[-1])
        return np.rint(np.minimum(instants * self._gap_ns, UNBOUNDED)).astype(np.int64)

    def _unit_gaps(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        if self.process == "poisson":
            return self._rng.standard_exponential(count)
        if self.process == "gamma":
            variance = self._cv * self._cv
            return self._rng.standard_gamma(1.0 / variance, count) * variance
        return np.ones(count)
