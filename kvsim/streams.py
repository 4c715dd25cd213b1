"""Named random streams: every source of randomness draws from its own, so none can move another's."""

from __future__ import annotations

import numpy as np

from kvsim.checks import check_integer
from kvsim.errors import ConfigError

STREAMS = ("arrivals", "lengths", "sampling", "beams", "think_time", "prompts", "calibration", "weights")
"""Names in spawn order. A new one goes to the end: the others then keep their numbers."""

SEED_LIMIT = 1 << 63


def stream(seed: int, name: str) -> np.random.Generator:
    """A fresh generator at the start of the stream `name` of `seed`.

    Raises:
        ConfigError: unknown name, or a seed that is not an integer in [0, 2**63).
    """
    check_integer("seed", seed, 0, SEED_LIMIT - 1)
    if name not in STREAMS:
        raise ConfigError(f"random stream {name!r} does not exist; there are {', '.join(STREAMS)}")
    return np.random.default_rng(np.random.SeedSequence(seed).spawn(len(STREAMS))[STREAMS.index(name)])
