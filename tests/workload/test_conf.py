"""Each option of the workload group builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from kvsim.errors import ConfigError

CONF = Path(__file__).parents[2] / "conf"


def build(option: str, *overrides: str) -> Any:
    top = {"seed": "0", "rate": "2.0", "duration": "null", "num_requests": "5"}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(f"workload/{option}", [*(f"+{k}={v}" for k, v in top.items()), *overrides])
    return instantiate(config.workload)


@pytest.mark.parametrize("option", ["sharegpt", "sharegpt_llama", "alpaca", "synthetic"])
def test_length_models(option: str) -> None:
    workload = build(option)
    assert len(list(iter(workload.next_arrival, None))) == 5


def test_options_reach_the_workload() -> None:
    lengths = ("workload.lengths.distribution=lognormal", "workload.lengths.input_mean=64")
    arrivals = iter(build("synthetic", "workload.arrivals=constant", "rate=4", *lengths).next_arrival, None)
    assert [a.request.arrival_ns for a in arrivals] == [250_000_000 * k for k in range(1, 6)]


def test_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("arrival_time_s,num_prompt_tokens,num_output_tokens\n3,1,2\n")
    workload = build("trace", f"workload.path={path}", "rate=null")
    assert workload.next_arrival().request.arrival_ns == 3_000_000_000


def test_trace_without_path() -> None:
    with pytest.raises(Exception, match="give workload.path=FILE") as caught:
        build("trace", "rate=null")
    assert isinstance(caught.value.__cause__, ConfigError)


def test_other_files_of_the_group_are_known() -> None:
    names = sorted(path.stem for path in (CONF / "workload").glob("*.yaml"))
    assert names == ["alpaca", "base", "sharegpt", "sharegpt_llama", "synthetic", "trace"]
