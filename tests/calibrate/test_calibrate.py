"""A calibration finds the step times of an engine that it knows nothing of."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from kvsim.calibrate.design import Design
from kvsim.calibrate.fit import Fit, fit
from kvsim.calibrate.measure import StepRecorder
from kvsim.calibrate.points import Buckets, Measured
from kvsim.calibrate.profile import profile_text
from kvsim.calibrate.run import Effort, calibrate
from kvsim.config import build_cost, compose
from kvsim.cost.fitted import Curve, FittedCost, Rates
from kvsim.cost.shape import StepShape
from kvsim.errors import ConfigError
from kvsim.protocols import CostModel
from kvsim.run import Run
from tests.calibrate.machines import BUCKETS, WORDS, machine_run, sim_run

EFFORT = Effort(repeats=2, max_seconds=30.0, max_tokens=1500, max_rows=64)
MODEL = instantiate(compose(WORDS).model)
UNLIMITED = ("scheduler.max_num_seqs=null", "scheduler.max_num_batched_tokens=null")


def measure(make: Any, *systems: str) -> Measured:
    runs = [(system, lambda system=system: make(f"system={system}")) for system in systems]
    return calibrate(MODEL, lambda: make(*UNLIMITED), runs, EFFORT, ["kvsim", "calibrate"], lambda line: None)


def cost_of(measured: Measured) -> FittedCost:
    """Through the file that is written."""
    made: FittedCost = instantiate(OmegaConf.create(profile_text(fit(measured.points, measured.buckets), measured)))(
        model=MODEL
    )
    return made


def held_out(truth: CostModel, found: CostModel, run: Run, most_rows: int = 64) -> np.ndarray:
    """Relative errors on the steps of a run that the calibration never saw."""
    recorder = StepRecorder(run.executor)
    dataclasses.replace(run, executor=recorder, fast_forward=False).execute()
    plans = [plan for plan in recorder.plans if StepShape.of(plan).rows <= most_rows]
    assert len(plans) > 100
    times = np.array([(truth.decode_run(plan, 1)[0], found.decode_run(plan, 1)[0]) for plan in plans])
    return np.abs(times[:, 1] / times[:, 0] - 1)


def test_the_roofline_is_recovered() -> None:
    measured = measure(sim_run, "vllm_v1")
    truth = build_cost(compose(WORDS))
    error = held_out(truth, cost_of(measured), sim_run("system=orca_oracle", "seed=5"))
    assert error.mean() < 0.01 and np.percentile(error, 95) < 0.02


RATES = Rates(4.0, 0.1, 6.0, 0.02, 1.5, step_us=0.0, row_us=0.0, prompt_us=0.0)


def planted(rng: np.random.Generator) -> FittedCost:
    """Padded, uneven from bucket to bucket."""

    def curve(name: str, low: float, slope: float) -> Curve:
        edges = BUCKETS[name]
        return Curve(edges, [(low + slope * edge) * rng.uniform(0.9, 1.1) for edge in edges], True, slope)

    return FittedCost(
        MODEL,
        "opt-13b",
        MODEL.num_parameters,
        decode=curve("decode", 900.0, 3.0),
        mixed=curve("mixed", 950.0, 2.5),
        head=curve("samples", 60.0, 0.5),
        context=Curve([1, 8, 64], [40.0, 20.0, 12.0], False, 0.0),
        rates=RATES,
    )


@pytest.mark.parametrize(("noise", "mean", "p95"), [(0.0, 0.003, 0.01), (0.02, 0.03, 0.06)])
def test_buckets_and_host_time_are_recovered(noise: float, mean: float, p95: float) -> None:
    truth = planted(np.random.default_rng(3))
    measured = measure(lambda *words: machine_run(truth, noise, (200.0, 3.0), *words), "vllm_v1", "fastertransformer")
    found = fit(measured.points, measured.buckets)
    assert found.rates.step_us == pytest.approx(200, rel=0.05)
    assert found.errors[-1].kind == "all" and found.errors[-1].mean < mean
    # the truth beside it has the host's time too
    whole = FittedCost(
        MODEL, "opt-13b", MODEL.num_parameters, truth._decode, truth._mixed, truth._head, truth._context,
        dataclasses.replace(RATES, step_us=200.0, row_us=3.0),
    )  # fmt: skip
    for system in ("vllm_v0", "fastertransformer"):
        error = held_out(whole, cost_of(measured), sim_run(f"system={system}", "seed=5"))
        assert error.mean() < mean and np.percentile(error, 95) < p95


def test_the_design_is_the_cost_model() -> None:
    measured = measure(lambda *words: machine_run(planted(np.random.default_rng(4)), 0.0, (0, 0), *words))
    shapes = [point.shape for point in measured.points]
    design = Design(measured.buckets, shapes)
    x = np.array(
        [float(f"{value:.4g}") for value in np.random.default_rng(5).uniform(1, 2, design.matrix([]).shape[1])]
    )
    curves, rates = design.profile(x, Rates(*[0.0] * 8))
    rates = dataclasses.replace(rates, step_us=0.0, prompt_us=0.0)  # which the curves hold
    cost = FittedCost(MODEL, "opt-13b", MODEL.num_parameters, rates=rates, **curves)
    predicted = np.array([cost.predict(shape) for shape in shapes]) / 1000
    assert design.matrix(shapes) @ x == pytest.approx(predicted, rel=1e-12)


def test_a_bucket_that_was_not_measured_lies_between_its_neighbours() -> None:
    truth = planted(np.random.default_rng(6))
    measured = measure(lambda *words: machine_run(truth, 0.0, (0, 0), *words))
    points = [point for point in measured.points if not (point.shape.decodes_only and 24 < point.shape.rows <= 32)]
    curve = fit(points, measured.buckets).curves["decode"]
    low, between, high = (curve.values[curve.edges.index(edge)] for edge in (24, 32, 40))
    assert between == pytest.approx((low + high) / 2, rel=0.03)  # others than its neighbours pull a little


def test_few_points_make_no_profile() -> None:
    with pytest.raises(ConfigError, match="3 points measured: a fit needs 10"):
        fit(measure(sim_run).points[:3], Buckets())


def test_the_smallest_numbers_survive_the_file() -> None:
    curve = Curve(range(1, 60), [1.234e-05 * edge for edge in range(1, 60)], True, 3e-07)
    found = Fit(dict.fromkeys(("decode", "mixed", "head", "context"), curve), Rates(*[5e-06] * 8), [])
    text = profile_text(found, Measured("opt-13b", 1, Buckets(), {}, []))
    assert max(map(len, text.splitlines())) <= 120
    read = OmegaConf.create(text)
    assert instantiate(read.head).values == curve.values
    assert instantiate(read.head).beyond == 3e-07 and instantiate(read.rates) == Rates(*[5e-06] * 8)
