"""Least squares with no coefficient below zero (Lawson and Hanson, Solving Least Squares Problems, chapter 23)."""

from __future__ import annotations

import numpy as np

from kvsim.latency import FloatArray

TOLERANCE = 1e-10
RIDGE = 1e-12
"""Of columns of length one: equal columns share their coefficient, and no system is singular."""


def nnls(a: FloatArray, b: FloatArray) -> FloatArray:
    """[columns] x >= 0 that makes ``|a x - b|`` least; a column of zeros gets 0.

    Args:
        a: [rows, columns].
        b: [rows].
    """
    norms = np.sqrt(np.square(a).sum(axis=0))
    norms[norms == 0] = 1
    scaled = a / norms
    gram, target = scaled.T @ scaled + RIDGE * np.eye(len(norms)), scaled.T @ b
    x = np.zeros(len(norms))
    free = np.zeros(len(norms), dtype=np.bool_)
    limit = TOLERANCE * float(np.abs(target).max(initial=0))
    for _ in range(3 * len(norms)):
        gradient = np.where(free, -np.inf, target - gram @ x)
        entering = int(gradient.argmax())
        if gradient[entering] <= limit:
            break
        free[entering] = True
        while True:
            solution = np.zeros_like(x)
            solution[free] = np.linalg.solve(gram[np.ix_(free, free)], target[free])
            blocked = free & (solution <= 0)
            if not blocked.any():
                x = solution
                break
            x += float((x[blocked] / (x[blocked] - solution[blocked])).min()) * (solution - x)
            free &= x > TOLERANCE * x.max()
            x[~free] = 0
    result: FloatArray = x / norms
    return result
