"""`GeneratedWorkload`: lengths from a length model, instants from an arrival process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kvsim.errors import ConfigError
from kvsim.streams import stream
from kvsim.units import MAX_SECONDS
from kvsim.workload.arrivals import ArrivalProcess
from kvsim.workload.base import Block, BlockWorkload, Limits
from kvsim.workload.lengths import LengthModel

BLOCK = 4096
DEFAULT_NUM_REQUESTS = 1000


class GeneratedWorkload(BlockWorkload):
    """Requests whose lengths and arrivals are drawn independently.

    A prefix of the requests depends on neither `duration` nor `num_requests`, and lengths not on `rate`.

    Args:
        lengths: where (input, output) pairs come from.
        arrivals: process, see `ArrivalProcess`.
        seed: of the run; arrivals and lengths use the streams of these names.
        rate: requests per second.
        duration: seconds; arrivals before it count.
        num_requests: at most so many; 1,000 if `duration` is None too.
        cv: of gamma gaps.

    Raises:
        ConfigError: a value out of range, or a workload that would never end.
    """

    def __init__(
        self,
        lengths: LengthModel,
        arrivals: str = "poisson",
        seed: int = 0,
        rate: float | None = None,
        duration: float | None = None,
        num_requests: int | None = None,
        cv: float = 1.0,
    ) -> None:
        if not hasattr(lengths, "draw"):
            raise ConfigError(
                f"workload.lengths={lengths!r}: is no length model; choose workload=sharegpt, for example"
            )
        if arrivals == "trace":
            raise ConfigError(
                "workload.arrivals=trace: a length model has no timestamps; "
                "give workload=trace workload.path=FILE, or for example workload.arrivals=poisson rate=2"
            )
        if duration is None and num_requests is None:
            num_requests = DEFAULT_NUM_REQUESTS
        self._limits = Limits(duration, num_requests)
        self._process = ArrivalProcess(arrivals, rate, cv, stream(seed, "arrivals"))
        if arrivals == "all_at_once" and num_requests is None:
            raise ConfigError(
                f"duration={duration!r} does not end workload.arrivals=all_at_once; give for example num_requests=1000"
            )
        if rate is not None and duration is None and self._limits.num_requests / rate > MAX_SECONDS:
            raise ConfigError(
                f"num_requests={num_requests} at rate={rate!r} last more than {MAX_SECONDS:g} s; "
                "lower num_requests or give a duration"
            )
        self._lengths = lengths
        self._rng = stream(seed, "lengths")
        super().__init__(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        taken = 0
        while True:
            # A block is always drawn whole: how much of it is used must not move later draws.
            times = self._process.take(BLOCK)
            inputs, outputs = self._lengths.draw(self._rng, BLOCK)
            count = self._limits.count(times, taken)
            yield Block(np.arange(taken, taken + count), times[:count], inputs[:count], outputs[:count])
            taken += count
            if count < BLOCK:
                return
