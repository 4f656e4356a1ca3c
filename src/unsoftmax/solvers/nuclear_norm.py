"""SOLVE: the matrix of least nuclear norm with given rank-one measurements (the program of Theorem 5.1).

Theory: docs/theory/low-rank.md, "Random probes".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.rank_one import RankOne

_RELAXATION = 1.7
"""Over-relaxation of the Douglas-Rachford step, which converges for every value between 0 and 2: near 2 it is faster
where it converges linearly, and 2 itself is not safe."""

_SHRINK = 0.18
"""Step of the proximal map relative to ||W||_F: near the singular values of the low ranks this program is for."""


@dataclass(frozen=True, eq=False)
class LeastNuclearNorm:
    """W = U diag(s) V' with rank = len(s); `gap` bounds how far its nuclear norm is from the least possible one.

    `moved` is the last step relative to ||W||; `converged` says it fell below the tolerance.
    """

    U: Array
    s: Array
    V: Array
    W: Array
    gap: float
    moved: float
    iterations: int
    converged: bool


def nuclear_norm(
    measurements: RankOne, t: Array, *, tolerance: float = 1e-10, max_iterations: int = 2000
) -> LeastNuclearNorm:
    """min ||W||_* subject to a_k'W b_k = t_k, by Douglas-Rachford splitting with over-relaxation.

    One iteration is an exact projection onto the measurements (a Cholesky factor of their m x m Gram matrix, computed
    once) and one singular value shrinkage. Linear convergence where the solution is unique and low rank.
    """
    d = measurements.dim
    Y, _ = measurements.nearest(np.zeros((d, d)), t)
    # ||W||_F seen through random measurements: E (a'Wb)^2 = |a|^2 |b|^2 ||W||_F^2 / d^2.
    weight = np.linalg.norm(measurements.A, axis=1) * np.linalg.norm(measurements.B, axis=1)
    size = float(np.linalg.norm(t) / np.linalg.norm(weight)) * d
    step = _SHRINK * size
    iteration, moved = 0, math.inf
    while moved > tolerance and iteration < max_iterations:
        iteration += 1
        X, y = measurements.nearest(Y, t)
        U, s, V = np.linalg.svd(2 * X - Y, full_matrices=False)
        rank = int(np.sum(s > step))
        U, s, V = U[:, :rank], s[:rank] - step, V[:rank].T
        Z = (U * s) @ V.T
        Y += _RELAXATION * (Z - X)
        moved = float(np.linalg.norm(Z - X)) / (float(np.linalg.norm(X)) or 1.0)
    gap = _gap(measurements, t, X, y / step if step else y)
    return LeastNuclearNorm(U, s, V, X, gap, moved, iteration, moved <= tolerance)


def _gap(measurements: RankOne, t: Array, X: Array, y: Array) -> float:
    """Relative duality gap: -t'y over the spectral norm of adjoint(y) is a lower bound on every feasible ||W||_*."""
    norm = float(np.linalg.norm(X, "nuc"))
    slope = float(np.linalg.norm(measurements.adjoint(y), 2))
    bound = abs(float(t @ y)) / max(slope, 1.0)
    return (norm - bound) / norm if norm else 0.0
