"""What counts as equal, and what a miss looks like."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from kvsim.validate.case import CaseResult
from kvsim.validate.compare import (
    QUANTITIES,
    Case,
    Row,
    Setting,
    StepError,
    Tolerance,
    Verdict,
    compare,
    parity_row,
    step_rows,
)
from kvsim.validate.output import RESULTS, caption, count, describe, draw, print_table, write_results

CASE = Case("vllm_v1", "knee", 3.5)
LIMITS = Tolerance(step=0.03, throughput=0.02, median=0.03, p99=0.05)
SETTING = Setting("opt-13b", "h200", "sharegpt", "mine", 256, 100, "NVIDIA H200")
TIMES = np.array([1_000_000, 2_000_000])


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


def test_repeated_runs_make_a_miss_noisy_if_they_lie_as_far_apart_but_not_too_far() -> None:
    assert verdicts(1.015, 0.98, 1.02)["output_throughput"] is Verdict.PASS
    assert verdicts(1.035, 0.98, 1.02)["output_throughput"] is Verdict.NOISY
    assert verdicts(1.045, 0.98, 1.02)["output_throughput"] is Verdict.MISS
    assert verdicts(1.035, 0.96, 1.04)["output_throughput"] is Verdict.MISS  # 8 % are more than 3 x 2 %
    assert verdicts(1.035, 0.96, 1.04)["median_ttft_ms"] is Verdict.NOISY
    assert verdicts(1.9, 0.5, 1.5)["p99_ttft_ms"] is Verdict.MISS
    (row, *_) = compare(CASE, values(1.11), [values(0.95), values(1.05)], LIMITS)
    assert (row.measured, row.spread, row.error) == pytest.approx((1.0, 0.1, 0.11))


def test_verdicts_are_counted() -> None:
    rows = compare(CASE, values(1.035), [values(0.98), values(1.02)], LIMITS)
    assert count(rows) == {"miss": 0, "noisy": 5, "pass": 3}
    assert count([*rows, parity_row(CASE, False)])["miss"] == 1


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


def result(case: Case, error: float = 0.0, setting: Setting = SETTING) -> CaseResult:
    steps = StepError(error, error, error, error)
    rows = [parity_row(case, True), *step_rows(case, "replay", steps, 0.03)]
    return CaseResult(rows + compare(case, values(1.0), [values(1.0), values(1.02)], LIMITS), setting, TIMES, TIMES)


def results_of(folder: Path) -> list[dict[str, str]]:
    with (folder / RESULTS).open() as file:
        return list(csv.DictReader(file))


def test_results_grow_and_replace_their_own_case(tmp_path: Path) -> None:
    other = Case("orca_max", "knee", 2.0)
    for one in (result(other), result(CASE, 0.5), result(CASE, 0.01)):
        write_results(tmp_path, one)
    rows = results_of(tmp_path)
    assert len(rows) == 2 * len(result(CASE).rows)
    assert [row["error"] for row in rows if row["quantity"] == "step_mean"] == ["0", "0.01"]
    steps = next(row for row in rows if row["system"] == "vllm_v1" and row["quantity"] == "step_mean")
    assert steps.pop("date").startswith("20")
    assert list(steps.values()) == [
        "vllm_v1", "knee", "3.5", "replay", "step_mean", "", "", "0.01", "0", "0.03", "pass",
        "opt-13b", "h200", "sharegpt", "mine", "256", "100", "NVIDIA H200",
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == [RESULTS]


@pytest.mark.parametrize("field", Setting._fields)
def test_results_of_another_setting_stay(field: str, tmp_path: Path) -> None:
    other = SETTING._replace(**{field: None if field == "device" else 7 if field.endswith(("s", "ks")) else "other"})
    write_results(tmp_path, result(CASE))
    write_results(tmp_path, result(CASE, setting=other))
    write_results(tmp_path, result(CASE))
    assert len(results_of(tmp_path)) == 2 * len(result(CASE).rows)


def test_the_table_fits_into_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    widest = Case("fastertransformer", "overload", 12.34)
    rows = [parity_row(widest, False), *step_rows(widest, "replay", StepError(*[0.5] * 4), 0.03)]
    rows += compare(widest, values(0.7), [values(1.0)], LIMITS)
    results = [result(CASE), CaseResult(rows, SETTING, TIMES, TIMES)]
    print_table(results)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    *_, passed, missed, _ = out.splitlines()
    assert passed.split()[0] == "vllm_v1" and passed.split()[-1] == "0/0"
    assert missed.split()[2:4] == ["+50.0", "+50.0"] and missed.split()[-1] == "10/0"
    print_table(results, "json")
    passed, missed = json.loads(capsys.readouterr().out)
    assert (passed["system"], passed["load"], passed["miss"], missed["miss"]) == ("vllm_v1", "knee", 0, 10)
    assert missed["replay_step_mean"] == 0.5 and missed["closed_p99_ttft_ms"] == pytest.approx(-0.3)


def test_a_miss_in_words() -> None:
    row = Row(*CASE, "closed", "p99_ttft_ms", 110.0, 100.0, 0.1, 0.02, 0.05)
    assert describe(row) == (
        "vllm_v1 knee: closed p99_ttft_ms +10.00% (110 for 100), tolerance 5%, repeats differ by 2.0%"
    )
    assert describe(parity_row(CASE, False)) == "vllm_v1 knee: parity plans +100.00%, tolerance 0%"


def test_the_figure_is_drawn_and_says_what_it_covers(tmp_path: Path) -> None:
    results = [result(CASE), result(CASE._replace(load="light"))]
    draw(tmp_path, results)
    assert (tmp_path / "step_times.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "step_times.pdf").read_bytes().startswith(b"%PDF")
    assert caption(results) == "opt-13b, sharegpt, NVIDIA H200, cost=mine\nknee, light"
