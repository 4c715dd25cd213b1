"""The fit of the paper's testbed uses the markers that the figures are compared with."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import ModuleType

import pytest

from kvsim.reproduce import fig12a, fig12d

FIT = runpy.run_path(str(Path(__file__).parents[2] / "analysis" / "fit_paper_a100.py"))


@pytest.mark.parametrize(("name", "figure"), [("12a", fig12a), ("12d", fig12d)])
def test_every_marker_is_fitted_or_held_out(name: str, figure: ModuleType) -> None:
    fitted, held_out = (FIT["vllm"](FIT[side]) for side in ("below_knee", "beyond_knee"))
    markers = [(point.rate, point.latency) for point in fitted + held_out if point.figure == name]
    (curve,) = (curve for curve in figure.CURVES if curve.system == "vllm_paper")
    assert sorted(markers) == list(curve.points)


def test_fitted_are_the_markers_that_the_fit_says() -> None:
    rates = {name: [p.rate for p in FIT["vllm"](FIT["below_knee"]) if p.figure == name] for name in ("12a", "12d")}
    assert rates == {"12a": [1.0, 1.25, 1.5], "12d": [20.0, 22.5, 25.0, 27.5]}
    assert [point.latency for point in FIT["BATCH_1"]] == [0.024, 0.038, 0.056]
