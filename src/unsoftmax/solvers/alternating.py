"""SOLVE: rank-one measurements of a matrix of known rank by alternating least squares on its factors.

Theory: docs/theory/low-rank.md, "Random probes".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.rank_one import RankOne, balanced, gauss_newton, residual, solve_left

_NEAR = 0.03
"""Misfit at which Gauss-Newton takes over from alternation."""

_PATIENCE = 10
"""Iterations in a row without progress before the rest is left to Gauss-Newton."""

_NO_WEIGHT = 1e-6
"""Singular values below this share of the largest carry nothing: the rank given was too large."""


@dataclass(frozen=True, eq=False)
class Factored:
    """W = K Q' (d, r each); `residual` is the relative misfit of the measurements it was fitted to."""

    K: Array
    Q: Array
    residual: float
    iterations: int
    converged: bool


def alternating(
    measurements: RankOne, t: Array, rank: int, *, tolerance: float = 1e-12, max_iterations: int = 300
) -> Factored:
    """Fit a_k'K Q'b_k = t_k: spectral start, K and Q in turn by least squares, Gauss and Newton at the end.

    `converged` says that the misfit fell to `tolerance`; where it did not, the fit is a local minimum, the rank too
    small, or the measurements too noisy for the tolerance asked.
    """
    left, s, right = np.linalg.svd(measurements.adjoint(t) / len(measurements))
    K, Q = left[:, :rank] * np.sqrt(s[:rank]), right[:rank].T * np.sqrt(s[:rank])
    swapped = RankOne(measurements.B, measurements.A)
    misfit, iterations, stalled = residual(measurements, t, K, Q), 0, 0
    while misfit > _NEAR and stalled < _PATIENCE and iterations < max_iterations:
        K, Q = balanced(K, Q)
        K = solve_left(measurements, t, K, Q)
        Q = solve_left(swapped, t, Q, K)
        before, misfit = misfit, residual(measurements, t, K, Q)
        stalled = stalled + 1 if misfit > 0.999 * before else 0
        iterations += 1
    K, Q, misfit, steps = polished(measurements, t, K, Q, tolerance)
    iterations += steps
    small = _trimmed(K, Q)
    if 0 < small[0].shape[1] < rank:
        # A rank given too large leaves directions of no weight, along which Gauss-Newton creeps.
        trimmed = polished(measurements, t, *small, tolerance)
        if trimmed[2] <= misfit:
            K, Q, misfit, steps = trimmed
            iterations += steps
    return Factored(*balanced(K, Q), misfit, iterations, misfit <= tolerance)


def _trimmed(K: Array, Q: Array) -> tuple[Array, Array]:
    K, Q = balanced(K, Q)
    s = np.einsum("ir,ir->r", K, K)
    keep = s > _NO_WEIGHT * s.max(initial=0.0)
    return K[:, keep], Q[:, keep]


def polished(
    measurements: RankOne, t: Array, K: Array, Q: Array, tolerance: float, max_steps: int = 12
) -> tuple[Array, Array, float, int]:
    """Gauss-Newton steps while they help: K, Q, the misfit and the number of steps."""
    best = (K, Q, residual(measurements, t, K, Q))
    for step in range(max_steps):
        if best[2] <= tolerance:
            return *best, step
        K, Q = gauss_newton(measurements, t, *balanced(best[0], best[1]))
        misfit = residual(measurements, t, K, Q)
        if misfit >= best[2]:
            return *best, step
        best = (K, Q, misfit)
    return *best, max_steps
