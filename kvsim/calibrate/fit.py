"""From measured points to a profile, with the error that it has on points it was not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvsim.calibrate.design import Design
from kvsim.calibrate.nnls import nnls
from kvsim.calibrate.points import Buckets, Point, kinds
from kvsim.cost.fitted import US, Curve, Rates
from kvsim.errors import ConfigError
from kvsim.latency import FloatArray
from kvsim.streams import stream

FOLDS = 5
ROUNDS = 4
"""Fits in a row, each giving less weight to what the one before missed by much more than usual."""
OUTLIER = 3.0
"""Times the median error from which a point loses weight."""
LEAST_ERROR = 1e-4
RUN_SHARE = 1.0
"""Weight of all points of real runs against all of the grid."""
LEAST_POINTS = 10


@dataclass(frozen=True)
class KindError:
    """Absolute relative error on held-out points of one kind: mean, 95th percentile, and the mean signed one."""

    kind: str
    points: int
    mean: float
    p95: float
    bias: float


@dataclass(frozen=True)
class Fit:
    """Curves and rates of a `FittedCost`, and how far held-out points were from them; the last error is of all."""

    curves: dict[str, Curve]
    rates: Rates
    errors: list[KindError]


def fit(points: Sequence[Point], buckets: Buckets) -> Fit:
    """Fit all points; errors are from `FOLDS` fits, each to the points that one fold leaves.

    Raises:
        ConfigError: too few points.
    """
    if len(points) < LEAST_POINTS:
        raise ConfigError(f"{len(points)} points measured: a fit needs {LEAST_POINTS}; raise calibrate.max_seconds")
    design = Design(buckets, [point.shape for point in points])
    matrix = design.matrix([point.shape for point in points])
    predicted = np.zeros(len(points))
    fold_of = stream(0, "calibration").permutation(len(points)) % FOLDS
    for fold in range(FOLDS):
        held = fold_of == fold
        known = [point for point, out in zip(points, held, strict=True) if not out]
        predicted[held] = matrix[held] @ fit_device(design, matrix[~held], known)
        predicted[held] += host_us(fit_host(known), [p for p, out in zip(points, held, strict=True) if out])
    curves, rates = design.profile(fit_device(design, matrix, points), fit_host(points))
    return Fit(curves, rates, errors_by_kind(points, predicted))


def fit_device(design: Design, matrix: FloatArray, points: Sequence[Point]) -> FloatArray:
    """Coefficients for the device time of `points`, whose rows of the design `matrix` holds."""
    device_us = np.array([point.device_ns for point in points]) / US
    trust = _trust(points)
    typical = float(np.median(device_us))
    scale = {"decode": typical, "mixed": typical, "head": 0.1 * typical, "context": 1.0}
    x = np.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        weight = trust / device_us
        smooth = design.smoothness(scale)
        x = nnls(
            np.vstack((matrix * weight[:, None], smooth)), np.concatenate((device_us * weight, np.zeros(len(smooth))))
        )
        scale = design.means(x)
        trust = _trust(points) * _doubt(np.abs(matrix @ x / device_us - 1))
    return x


def fit_host(points: Sequence[Point]) -> Rates:
    """Host time, from the points of real runs."""
    runs = [point for point in points if point.in_run]
    x = np.zeros(3)
    if runs:
        matrix = _host_matrix(runs)
        host = np.array([point.host_ns for point in runs]) / US
        total = np.array([point.device_ns + point.host_ns for point in runs]) / US
        weight = 1 / total
        for _ in range(ROUNDS):
            x = nnls(matrix * weight[:, None], host * weight)
            weight = _doubt(np.abs(matrix @ x - host) / total) / total
    step, row, prompt = x.tolist()
    return Rates(0.0, 0.0, 0.0, 0.0, 0.0, step_us=step, row_us=row, prompt_us=prompt)


def host_us(rates: Rates, points: Sequence[Point]) -> FloatArray:
    """[points] host time in us; 0 for those of the grid, which have none."""
    in_run = np.array([point.in_run for point in points])
    us: FloatArray = in_run * (_host_matrix(points) @ np.array([rates.step_us, rates.row_us, rates.prompt_us]))
    return us


def _host_matrix(points: Sequence[Point]) -> FloatArray:
    shapes = [point.shape for point in points]
    prompts = [not shape.decodes_only for shape in shapes]
    columns = ([1] * len(shapes), [shape.rows + shape.idle_rows for shape in shapes], prompts)
    return np.array(columns, dtype=np.float64).T


def _trust(points: Sequence[Point]) -> FloatArray:
    """Square roots of weights: a long run does not outvote the grid."""
    in_run = np.array([point.in_run for point in points])
    runs = np.count_nonzero(in_run)
    share = min(1.0, RUN_SHARE * (len(points) - runs) / runs) if 0 < runs < len(points) else 1.0
    return np.where(in_run, share**0.5, 1.0)


def _doubt(error: FloatArray) -> FloatArray:
    """Factor of a point's weight, below 1 for outliers (Huber)."""
    limit = OUTLIER * max(float(np.median(error)), LEAST_ERROR)
    return np.sqrt(np.minimum(1.0, limit / np.maximum(error, limit)))


def errors_by_kind(points: Sequence[Point], predicted_us: FloatArray) -> list[KindError]:
    """Errors of a prediction of every point, by kind, and in the end of all of them."""
    total_us = np.array([point.device_ns + point.host_ns for point in points]) / US
    signed = predicted_us / total_us - 1
    of = np.array([point.kind for point in points])
    chosen = [(kind, of == kind) for kind in kinds(points)] + [("all", np.full(len(points), True))]
    return [
        KindError(
            kind,
            int(mask.sum()),
            float(np.abs(signed[mask]).mean()),
            float(np.percentile(np.abs(signed[mask]), 95)),
            float(signed[mask].mean()),
        )
        for kind, mask in chosen
    ]
