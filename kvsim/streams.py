"""Named random streams: every source of randomness draws from its own, so none can move another's."""

from __future__ import annotations

import numpy as np

from kvsim.errors import ConfigError

STREAMS = ("arrivals", "lengths", "sampling", "beams", "think_time")
"""Names in spawn order. A new one goes to the end: the others then keep their numbers."""

SEED_LIMIT = 1 << 63


def stream(seed: int, name: str) -> np.random.Generator:
    """A fresh generator at the start of the stream `name` of `seed`.

    Raises:
        ConfigError: unknown name, or a seed that is not an integer in [0, 2**63).
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < SEED_LIMIT:
        raise ConfigError(f"seed={seed!r}: must be an integer from 0 to 2**63 - 1; give for example seed=0")
    if name not in STREAMS:
        raise ConfigError(f"random stream {name!r} does not exist; there are {', '.join(STREAMS)}")
    return np.random.default_rng(np.random.SeedSequence(seed).spawn(len(STREAMS))[STREAMS.index(name)])
