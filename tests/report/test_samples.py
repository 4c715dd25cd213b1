"""Samples from files, against the summaries of the same runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvsim.errors import ConfigError
from kvsim.metrics import MEMORY_CLASSES
from kvsim.plots.colours import SYSTEMS
from kvsim.plots.data import Legend
from kvsim.plots.runs import central_range
from kvsim.report.runs import find_runs
from kvsim.report.samples import Steps, distribution, latencies_ms

LEGEND = Legend("a", SYSTEMS["vllm_paper"])


def test_latencies_are_those_of_the_summary(runs: Path) -> None:
    for run in find_runs([runs])[0]:
        for name, values in latencies_ms(run).items():
            for metric, q in (("median", 50), ("p90", 90), ("p99", 99)):
                assert np.percentile(values, q) == pytest.approx(run.summary[f"{metric}_{name.lower()}_ms"], rel=1e-9)


def test_tpot_ends_with_the_last_token_where_the_file_has_it(one: Callable[[str], Path]) -> None:
    run = find_runs([one("batch")])[0][0]
    rows = {"arrival_s": [20.0], "first_token_s": [21.0], "finished_s": [29.0], "num_output_tokens": [5]}
    path = run.path / "requests.parquet"
    pq.write_table(pa.table(rows | {"state": ["completed"]}), path)
    assert {name: values.tolist() for name, values in latencies_ms(run).items()} == {
        "TTFT": [1000],
        "TPOT": [2000],
        "E2EL": [9000],
    }
    pq.write_table(pa.table(rows | {"state": ["completed"], "last_token_s": [25.0]}), path)
    assert latencies_ms(run)["TPOT"].tolist() == [1000]
    assert latencies_ms(run)["E2EL"].tolist() == [9000]


def test_distribution_knows_where_its_axis_ends() -> None:
    values = np.append(np.arange(1.0, 10_000), 1e9)
    found = distribution(LEGEND, values, 50)
    assert len(found.value) == 50
    low, high = central_range([found]) or (0, 0)
    assert (low, high) == (pytest.approx(11, abs=1), pytest.approx(9990, abs=1))


def test_distribution_ends_with_the_extremes() -> None:
    values = np.array([5.0, 1.0, 3.0])
    found = distribution(LEGEND, values, 201)
    assert found.value.tolist() == [1, 3, 5]
    assert found.fraction.tolist() == [0, 0.5, 1]
    assert len(distribution(LEGEND, np.arange(1000.0), 201).value) == 201


def test_timeline_of_every_row_averages_to_the_summary(runs: Path) -> None:
    run = find_runs([runs / "system-orca_max+rate-4+seed-0"])[0][0]
    steps = Steps(run)
    timeline = steps.timeline(LEGEND, steps.end_s, 10**6)
    assert sum(timeline.memory.values()) == pytest.approx(np.ones(len(timeline.time_s)))
    lasts = np.diff(timeline.time_s.clip(run.warmup_s))
    for name in ("token_state", "reserved", "internal"):
        mean = (timeline.memory[name][:-1] * lasts).sum() / lasts.sum()
        assert mean == pytest.approx(run.summary[f"kv_{name}_frac"], rel=1e-6)


def test_cut_timeline_keeps_peaks_and_adds_up(runs: Path) -> None:
    run = find_runs([runs / "system-vllm_paper+rate-4+seed-0"])[0][0]
    steps = Steps(run)
    whole = steps.timeline(LEGEND, steps.end_s, 10**6)
    cut = steps.timeline(LEGEND, steps.end_s, 20)
    assert len(cut.time_s) <= 4 * 20 + 3 < len(whole.time_s)
    assert cut.memory["free_usable"].min() == whole.memory["free_usable"].min()
    assert cut.waiting.max() == whole.waiting.max()
    assert sum(cut.memory.values()) == pytest.approx(np.ones(len(cut.time_s)))
    assert (np.diff(cut.time_s) >= 0).all()


def test_peak_stays_while_no_block_can_be_used(one: Callable[[str], Path]) -> None:
    # the head of the queue is starved throughout: all that is free is unusable
    run = find_runs([one("starved")])[0][0]
    in_use = np.array([40, 60, 75, 90, 50])
    empty = np.zeros(5, dtype=np.int64)
    start = np.arange(5.0)
    steps = {"start_s": start, "duration_s": np.ones(5), "num_waiting": empty + 1, "num_running": empty + 1}
    memory = dict.fromkeys(MEMORY_CLASSES, empty) | {"token_state": in_use, "free_unusable": 100 - in_use}
    pq.write_table(pa.table(steps), run.path / "steps.parquet")
    pq.write_table(pa.table(memory), run.path / "memory.parquet")
    cut = Steps(run).timeline(LEGEND, 4.5, 1)
    assert cut.memory["token_state"].max() == 0.9
    assert cut.memory["token_state"].min() == 0.4


def test_timeline_ends_where_asked(runs: Path) -> None:
    timeline = Steps(find_runs([runs / "system-orca_max+rate-4+seed-0"])[0][0]).timeline(LEGEND, 30, 50)
    assert timeline.time_s[-1] == 30
    assert timeline.warmup_s == 10


def test_idle_pool_is_free(runs: Path) -> None:
    run = find_runs([runs / "system-vllm_paper+rate-1+seed-0"])[0][0]
    steps = pq.read_table(run.path / "steps.parquet", columns=["start_s", "duration_s"]).to_pydict()
    gaps = np.array(steps["start_s"][1:]) - np.add(steps["start_s"], steps["duration_s"])[:-1]
    timeline = Steps(run).timeline(LEGEND, 1e9, 10**6)
    assert (timeline.running == 0).sum() >= (gaps > 1e-6).sum() + 1
    assert timeline.memory["free_usable"][-1] == 1
    assert set(timeline.memory) <= set(MEMORY_CLASSES)


def test_broken_file_is_named(one: Callable[[str], Path]) -> None:
    folder = one("broken")
    run = find_runs([folder])[0][0]
    (folder / "requests.parquet").write_bytes(b"no parquet")
    (folder / "steps.parquet").unlink()
    with pytest.raises(ConfigError, match=r"cannot read .*broken/requests\.parquet"):
        latencies_ms(run)
    with pytest.raises(ConfigError, match=r"cannot read .*broken/steps\.parquet: no such file"):
        Steps(run)
    os.mkfifo(folder / "steps.parquet")
    with pytest.raises(ConfigError, match=r"steps\.parquet: no regular file"):
        Steps(run)


def test_file_of_another_shape_is_named(one: Callable[[str], Path]) -> None:
    run = find_runs([one("odd")])[0][0]
    names = ("arrival_s", "first_token_s", "finished_s", "num_output_tokens", "state")
    pq.write_table(pa.table({name: ["text"] for name in names}), run.path / "requests.parquet")
    with pytest.raises(ConfigError, match="arrival_s, .* has no numbers"):
        latencies_ms(run)
    pq.write_table(pa.table({"state": ["completed"]}), run.path / "requests.parquet")
    with pytest.raises(ConfigError, match="no column arrival_s"):
        latencies_ms(run)
    pq.write_table(pa.table({name: [1] for name in MEMORY_CLASSES}), run.path / "memory.parquet")
    with pytest.raises(ConfigError, match=r"memory\.parquet: it has not a row for every step"):
        Steps(run)
