"""The demo."""

from __future__ import annotations

import pytest

from kvsim.demo import SYSTEMS, main


def test_one_table_of_all_systems(capsys: pytest.CaptureFixture[str]) -> None:
    main(["duration=60", "warmup=10"])
    out = capsys.readouterr().out
    assert out.split()[: len(SYSTEMS) + 1] == ["system", *SYSTEMS]
    batch = next(line for line in out.splitlines() if "batch" in line).split()[2:]
    static, orca_max, orca_pow2, orca_oracle, vllm = map(float, batch)
    assert static < orca_max < orca_pow2 < orca_oracle < vllm
    assert orca_max <= 7  # chunks of 2,048 tokens in 15,728 slots
