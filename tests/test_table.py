"""Tables and JSON of summaries."""

from __future__ import annotations

import json

import pytest

from kvsim.table import METRICS, MS, ROWS, SWEEP_METRICS, as_text, print_summaries

SUMMARY: dict[str, object] = {"system": "vllm_v1", **dict.fromkeys(ROWS, 0.5)}


def test_null_and_flags_are_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_summaries([SUMMARY | {"mean_tpot_ms": None, "saturated": True, "kv_token_state_frac": 0.963}])
    lines = {
        line.rsplit(maxsplit=1)[0].strip(): line.split()[-1]
        for line in capsys.readouterr().out.splitlines()
        if " " in line.strip()
    }
    assert (lines["TPOT mean, ms"], lines["saturated"], lines["KV token state"]) == ("-", "yes", "96.3%")


def test_nothing_is_cut_off_outside_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"a_system_with_a_long_name_{index}" for index in range(5)]
    print_summaries([SUMMARY | {"system": name} for name in names])
    head = next(line for line in capsys.readouterr().out.splitlines() if "system" in line)
    assert head.split() == ["system", *names]


def test_json_is_a_list_of_flat_dicts(capsys: pytest.CaptureFixture[str]) -> None:
    print_summaries([SUMMARY | {"mean_tpot_ms": None, "not_shown": 1}], "json")
    (printed,) = json.loads(capsys.readouterr().out)
    assert printed == SUMMARY | {"mean_tpot_ms": None}


@pytest.mark.parametrize(
    ("value", "style", "text"),
    [
        (None, ".1f", "-"),
        (True, "", "yes"),
        (False, "", "no"),
        (2.0, "", "2"),
        (3, "", "3"),
        ("words", "", "words"),
        (0.963, ".1%", "96.3%"),
        (1234567, ",.0f", "1,234,567"),
        (999.94, MS, "999.9"),
        (1234.5, MS, "1,234"),
    ],
)
def test_values_for_people(value: object, style: str, text: str) -> None:
    assert as_text(value, style) == text


def test_every_metric_has_one_label() -> None:
    labels = [metric.label for metric in METRICS.values()]
    assert len(set(labels)) == len(labels)
    assert {*ROWS, *SWEEP_METRICS} <= METRICS.keys()
