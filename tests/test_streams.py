"""Named streams."""

from __future__ import annotations

import numpy as np
import pytest

from kvsim import streams
from kvsim.errors import ConfigError
from kvsim.streams import STREAMS, stream


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_a_function_of_seed_and_name(name: str) -> None:
    first = stream(7, name).random(100)
    assert np.array_equal(first, stream(7, name).random(100))
    assert not np.array_equal(first, stream(8, name).random(100))


def test_streams_differ_from_each_other() -> None:
    assert len({stream(0, name).random() for name in STREAMS}) == len(STREAMS)


def test_a_name_added_at_the_end_moves_no_other_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [stream(3, name).random() for name in STREAMS]
    monkeypatch.setattr(streams, "STREAMS", (*STREAMS, "new"))
    assert [stream(3, name).random() for name in STREAMS] == before
    assert stream(3, "new").random() not in before


def test_order_of_names_is_frozen() -> None:
    assert STREAMS[:5] == ("arrivals", "lengths", "sampling", "beams", "think_time")


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, True, "0", None, float("nan")])
def test_bad_seed_is_refused(seed: object) -> None:
    with pytest.raises(ConfigError, match="seed="):
        stream(seed, "lengths")  # type: ignore[arg-type]


def test_largest_seed_works() -> None:
    assert 0 <= stream(2**63 - 1, "arrivals").random() < 1


def test_unknown_stream_is_refused() -> None:
    with pytest.raises(ConfigError, match="'length' does not exist; there are arrivals, lengths"):
        stream(0, "length")
