"""What counts as equal, and what a miss looks like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kvsim.validate.case import CaseResult
from kvsim.validate.compare import (
    QUANTITIES,
    Case,
    Row,
    StepError,
    Tolerance,
    Verdict,
    compare,
    parity_row,
    step_rows,
)
from kvsim.validate.output import RESULTS, describe, draw, print_table, write_results

CASE = Case("vllm_v1", "knee", 3.5)
LIMITS = Tolerance(step=0.03, throughput=0.02, median=0.03, p99=0.05)


def values(value: float | None, **others: float | None) -> dict[str, float | None]:
    return {**dict.fromkeys(QUANTITIES, value), **others}


def verdicts(simulated: float | None, *measured: float | None) -> dict[str, Verdict]:
    rows = compare(CASE, values(simulated), [values(value) for value in measured], LIMITS)
    return {row.quantity: row.verdict for row in rows}


def test_each_quantity_has_its_own_tolerance() -> None:
    found = verdicts(1.025, 1.0, 1.0)
    assert found["output_throughput"] is Verdict.MISS
    assert found["mean_normalized_latency"] is found["median_ttft_ms"] is found["p99_tpot_ms"] is Verdict.PASS
    assert found["p90_ttft_ms"] is found["mean_tpot_ms"] is Verdict.REPORTED
    assert {name for name, verdict in verdicts(0.96, 1.0, 1.0).items() if verdict is Verdict.PASS} == {
        "p99_normalized_latency", "p99_ttft_ms", "p99_tpot_ms",
    }  # fmt: skip


def test_repeated_runs_excuse_what_lies_no_further_off_than_they_do() -> None:
    assert verdicts(1.05, 0.95, 1.05)["output_throughput"] is Verdict.PASS
    assert verdicts(1.11, 0.95, 1.05)["output_throughput"] is Verdict.MISS
    (row, *_) = compare(CASE, values(1.11), [values(0.95), values(1.05)], LIMITS)
    assert (row.measured, row.spread, row.error) == pytest.approx((1.0, 0.1, 0.11))


def test_what_is_undefined_on_both_sides_is_equal() -> None:
    assert verdicts(None, None, None)["median_tpot_ms"] is Verdict.PASS
    assert verdicts(None, 1.0)["median_tpot_ms"] is verdicts(1.0, None)["median_tpot_ms"] is Verdict.MISS
    assert verdicts(0.0, 0.0)["median_tpot_ms"] is Verdict.PASS


def test_step_errors_by_hand() -> None:
    error = StepError.of(np.array([90, 220, 1000]), np.array([100, 200, 1000]))
    assert error == pytest.approx((0.2 / 3, 30 / 1300, 0.1, 10 / 1300))
    rows = step_rows(CASE, "replay", error, 0.05)
    assert [row.verdict for row in rows] == [Verdict.MISS, *[Verdict.REPORTED] * 3]


def test_parity_has_no_tolerance() -> None:
    assert parity_row(CASE, True).verdict is Verdict.PASS
    assert parity_row(CASE, False).verdict is Verdict.MISS


def all_rows(case: Case, error: float = 0.0) -> list[Row]:
    steps = StepError(error, error, error, error)
    rows = [parity_row(case, True), *step_rows(case, "replay", steps, 0.03)]
    return rows + compare(case, values(1.0), [values(1.0), values(1.02)], LIMITS)


def test_results_grow_and_replace_their_own_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Case("orca_max", "knee", 2.0)
    write_results(tmp_path, all_rows(other))
    write_results(tmp_path, all_rows(CASE, 0.5))
    write_results(tmp_path, all_rows(CASE, 0.01))
    lines = (tmp_path / RESULTS).read_text().splitlines()
    assert len(lines) == 1 + 2 * len(all_rows(CASE))
    assert "vllm_v1,knee,3.5,replay,step_mean,,,0.01,0,0.03,pass" in lines
    assert [path.name for path in tmp_path.iterdir()] == [RESULTS]
    print_table([*all_rows(other), *all_rows(CASE, 0.5)])
    out = capsys.readouterr().out
    assert "+50.0%" in out and "1 MISS" in out and "~2.0%" in out


def test_a_miss_in_words() -> None:
    row = Row(*CASE, "closed", "p99_ttft_ms", 110.0, 100.0, 0.1, 0.02, 0.05)
    assert describe(row) == (
        "vllm_v1 knee: closed p99_ttft_ms simulated 110, measured 100: +10.00%, tolerance 5%, "
        "repeated runs differ by 2.0%"
    )
    assert describe(parity_row(CASE, False)) == "vllm_v1 knee: parity plans +100.00%, tolerance 0%"


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    times = np.array([1_000_000, 2_000_000])
    draw(tmp_path, [CaseResult(all_rows(CASE), times, times), CaseResult(all_rows(CASE), times, times + 1)])
    assert (tmp_path / "step_times.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "step_times.pdf").read_bytes().startswith(b"%PDF")
