"""How runs become settings, series and points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvsim.plots.colours import styles, variant_style
from kvsim.report.arrange import arrange
from kvsim.report.runs import FinishedRun, find_runs


def run(system: str, rate: float | None, seed: int = 0, config: Mapping[str, Any] = {}, **summary: Any) -> FinishedRun:
    labels = {"system": system, "model": "m", "hardware": "h", "workload": "w", "rate": rate, "seed": seed}
    name = f"{system}-{rate}-{seed}-{sorted(config.items())}-{summary}"
    return FinishedRun(name, Path("nowhere"), labels | summary, dict(config), "1")


def test_real_runs(runs: Path) -> None:
    (setting,), repeated = arrange(find_runs([runs])[0])
    assert (setting.title, setting.axis) == ("sharegpt, opt-13b on a100-40gb", "rate")
    assert not setting.unequal
    assert not repeated
    assert [series.legend.label for series in setting.series] == ["orca_max", "vllm_paper"]
    assert [[(point.x, len(point.runs)) for point in series.points] for series in setting.series] == [
        [(1, 2), (4, 2)],
        [(1, 2), (4, 2)],
    ]
    assert setting.common_place == 4


def test_systems_in_the_order_of_the_presets_then_others() -> None:
    (setting,), _ = arrange([run(name, 1) for name in ("zeta", "vllm_v1", "alpha", "orca_max")])
    assert [series.system for series in setting.series] == ["orca_max", "vllm_v1", "alpha", "zeta"]
    assert len({series.legend.style for series in setting.series}) == 4


def test_variants_of_a_system_are_told_apart_by_shade_and_marker() -> None:
    sizes = [run("a", rate, config={"kv.num_blocks": size}) for size in (100, 200) for rate in (1, 2)]
    (setting,), _ = arrange([*sizes, run("b", 1, config={"kv.num_blocks": 100})])
    legends = [series.legend for series in setting.series]
    assert [legend.label for legend in legends] == ["a, kv.num_blocks=100", "a, kv.num_blocks=200", "b"]
    assert legends[0].style == styles(["a", "b"])["a"]
    assert legends[1].style == variant_style(legends[0].style, 1)
    assert setting.swept == ("kv.num_blocks",)
    assert [legend.variant for legend in legends] == [0, 1, 0]
    assert setting.unequal == {"kv.num_blocks": ("100", "200")}


def test_option_stands_for_the_keys_below_it() -> None:
    options = [{"cost": "roofline", "cost.launch": 50, "cost.host": 1}, {"cost": "constant", "cost.seconds": 1}]
    (setting,), _ = arrange([run("a", rate, config=option) for option in options for rate in (1, 2)])
    assert [series.legend.label for series in setting.series] == ["a, cost=roofline", "a, cost=constant"]


def test_one_number_varied_at_one_rate_is_the_axis() -> None:
    (setting,), _ = arrange([run("a", 2, config={"kv.num_blocks": size, "duration": size}) for size in (900, 30, 200)])
    assert setting.axis == "kv.num_blocks"
    assert [point.x for point in setting.series[0].points] == [30, 200, 900]


def test_number_with_most_values_is_the_axis_at_one_rate() -> None:
    found = [
        run("a", 2, config={"cost": cost, "cost.launch": launch, "kv.num_blocks": size, "scheduler.max": most})
        for cost, launch in (("roofline", 1), ("a100", 2))
        for size in (30, 900, 200)
        for most in (1, 2)
    ]
    (setting,), _ = arrange(found)
    assert (setting.axis, setting.swept) == ("kv.num_blocks", ("cost", "scheduler.max"))
    assert [series.legend.label for series in setting.series] == [
        f"a, cost={cost}, scheduler.max={most}" for cost in ("roofline", "a100") for most in (1, 2)
    ]
    assert [[point.x for point in series.points] for series in setting.series] == [[30, 200, 900]] * 4
    assert not setting.unequal  # every system took every value


def test_of_equally_many_values_the_memory_is_the_axis() -> None:
    found = [run("a", 2, config={"kv.num_blocks": size, "engine.max": most}) for size in (1, 2) for most in (1, 2)]
    assert arrange(found)[0][0].axis == "kv.num_blocks"
    assert arrange([*found, run("a", 2, config={"kv.num_blocks": 1, "engine.max": 3})])[0][0].axis == "engine.max"


def test_run_without_configuration_differs_in_that_alone() -> None:
    good = [run("a", 1, config={"kv.num_blocks": size, "hardware.bytes": 9, "x": 1}) for size in (1, 2)]
    settings, _ = arrange([*good, run("a", 1)])
    assert [setting.title for setting in settings] == ["w, m on h", "w, configuration not recorded, m on h"]
    assert settings[0].axis == "kv.num_blocks"
    assert [series.legend.label for series in settings[0].series] == ["a"]


def test_number_beyond_all_is_no_axis() -> None:
    (setting,), _ = arrange([run("a", 1, config={"kv.num_blocks": size}) for size in (1, 10**400, float("nan"))])
    assert setting.axis == "rate"


def test_longer_runs_at_slow_rates_are_one_curve() -> None:
    (setting,), _ = arrange([run("a", rate, config={"duration": 600 / rate, "warmup": 60 / rate}) for rate in (1, 2)])
    assert [point.x for point in setting.series[0].points] == [1, 2]
    assert setting.unequal == {"duration": ("600", "300"), "warmup": ("60", "30")}


def test_workloads_models_and_changed_hardware_are_settings() -> None:
    spared = [run("a", 1, config={"hardware.memory_utilization": share}) for share in (0.8, 0.9)]
    spared += [run("a", 2, config={"hardware.memory_utilization": share}) for share in (0.8, 0.9)]
    settings, _ = arrange([*spared, run("a", 1, workload="other"), run("a", 1, model="n")])
    assert [setting.title for setting in settings] == [
        "w, hardware.memory_utilization=0.8, m on h",
        "w, hardware.memory_utilization=0.9, m on h",
        "other, m on h",
        "w, n on h",
    ]


def test_keys_that_change_no_result_make_no_difference() -> None:
    odd = {"output": "json", "engine.fast_forward": False, "engine.record_plans": True, "sweep.dry_run": False}
    configs = ({}, odd, {"workload.seed": 2})
    (setting,), repeated = arrange([run("a", 1, seed, {"x": 1} | config) for seed, config in enumerate(configs)])
    assert len(setting.series[0].points[0].runs) == 3
    assert not repeated


def test_repeated_run_is_left_out_and_named() -> None:
    first = run("a", 1)
    (setting,), (repeated,) = arrange([first, replace(first, name="again")])
    assert len(setting.runs) == 1
    assert (repeated.name, repeated.state) == ("again", "repeated")
    assert first.name in repeated.reason


def test_place_that_most_series_share_is_the_highest_of_them() -> None:
    found = [run("a", 1), run("a", 2), run("a", 3), run("b", 1), run("b", 2), run("c", None)]
    (setting,), _ = arrange(found)
    assert setting.places == [1, 2, 3, None]
    assert setting.common_place == 2


def test_saturation_of_any_seed_is_counted() -> None:
    (setting,), _ = arrange([run("a", 1, seed, saturated=seed == 1) for seed in range(3)])
    assert setting.series[0].points[0].saturated == [False, True, False]


def test_saturation_may_be_undefined() -> None:
    (setting,), _ = arrange([run("a", 1, seed, saturated=(None, True)[seed]) for seed in range(2)])
    assert setting.series[0].points[0].saturated == [True]
