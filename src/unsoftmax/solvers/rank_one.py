"""The map W -> (a_k'W b_k)_k of rank-one measurements, applied as products of A (m, d) and B (m, d).

SOLVE: rank-one measurements of a matrix of known rank by alternating least squares on its factors.

SOLVE: the matrix of least nuclear norm with given rank-one measurements (the program of Theorem 5.1).

Theory: docs/theory/low-rank.md, "Random probes".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, lsqr

from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd

_NEAR = 0.03
"""Misfit at which Gauss-Newton takes over from alternation."""

_PATIENCE = 10
"""Iterations in a row without progress before the rest is left to Gauss-Newton."""

_NO_WEIGHT = 1e-6
"""Singular values below this share of the largest carry nothing: the rank given was too large."""

_RELAXATION = 1.7
"""Over-relaxation of the Douglas-Rachford step, which converges for every value between 0 and 2: near 2 it is faster
where it converges linearly, and 2 itself is not safe."""

_SHRINK = 0.18
"""Step of the proximal map relative to ||W||_F: near the singular values of the low ranks this program is for."""


@dataclass(frozen=True, eq=False)
class LeastNuclearNorm:
    """W = U diag(s) V' with rank = len(s); `gap` bounds how far its nuclear norm is from the least possible one.

    `converged` says that the last step, relative to ||W||, fell below the tolerance.
    """

    U: Array
    s: Array
    V: Array
    W: Array
    gap: float
    iterations: int
    converged: bool


@dataclass(frozen=True, eq=False)
class Factored:
    """W = K Q' (d, r each); `residual` is the relative misfit of the measurements it was fitted to."""

    K: Array
    Q: Array
    residual: float
    iterations: int
    converged: bool


@dataclass(frozen=True, eq=False)
class RankOne:
    """m measurements a_k'W b_k of a d x d matrix; never an m x d^2 array."""

    A: Array
    B: Array

    @property
    def dim(self) -> int:
        return self.A.shape[1]

    def __len__(self) -> int:
        return len(self.A)

    def __call__(self, W: Array) -> Array:
        """W (d, d) -> (m,)."""
        return np.asarray(np.einsum("kj,kj->k", self.A @ W, self.B))

    def adjoint(self, y: Array) -> Array:
        """sum_k y_k a_k b_k', (d, d)."""
        return np.asarray((self.A.T * y) @ self.B)

    @cached_property
    def _gram(self) -> tuple[Array, bool]:
        # Entries of the m x m matrix of inner products <a_k b_k', a_l b_l'>.
        gram = (self.A @ self.A.T) * (self.B @ self.B.T)
        factor: tuple[Array, bool] = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
        return factor

    def nearest(self, W: Array, t: Array) -> tuple[Array, Array]:
        """The matrix nearest W with measurements t, and the multipliers y (m,) of the move: W - adjoint(y)."""
        y = cho_solve(self._gram, self(W) - t, check_finite=False)
        return W - self.adjoint(y), y


def _solved(sides: list[tuple[Array, Array]], t: Array, start: Array, iterations: int) -> Array:
    """X_i (d, r) with sum_i (a_ik'X_i) . f_ik = t_k for `sides` A_i (m, d), F_i (m, r), by LSQR from `start` (i, d, r).

    The m x dr system is never formed; of several solutions the nearest to the start.
    """

    def forward(x: Array) -> Array:
        parts = zip(sides, x.reshape(start.shape), strict=True)
        return np.asarray(sum(np.einsum("kr,kr->k", A @ X, F) for (A, F), X in parts))

    def backward(y: Array) -> Array:
        return np.concatenate([(A.T @ (y[:, None] * F)).ravel() for A, F in sides])

    operator = LinearOperator((len(t), start.size), matvec=forward, rmatvec=backward, dtype=np.float64)
    x = lsqr(operator, t, atol=1e-14, btol=1e-14, iter_lim=iterations, x0=start.ravel())[0]
    return np.asarray(x).reshape(start.shape)


def solve_left(measurements: RankOne, t: Array, K: Array, Q: Array) -> Array:
    """Least squares for K (d, r) in a_k'K (Q'b_k) = t_k, starting from K."""
    return np.asarray(_solved([(measurements.A, measurements.B @ Q)], t, K[None], 200)[0])


def gauss_newton(measurements: RankOne, t: Array, K: Array, Q: Array) -> tuple[Array, Array]:
    """One step for K and Q together: K dQ' + dK Q' fitted to what K Q' leaves of t, the shortest step."""
    A, B = measurements.A, measurements.B
    left, right = A @ K, B @ Q
    rest = t - np.einsum("kr,kr->k", left, right)
    dK, dQ = _solved([(A, right), (B, left)], rest, np.zeros((2, *K.shape)), 400)
    return K + dK, Q + dQ


def balanced(K: Array, Q: Array) -> tuple[Array, Array]:
    """The same K Q' with factors of equal singular values."""
    UK, RK = np.linalg.qr(K)
    UQ, RQ = np.linalg.qr(Q)
    left, s, right = svd(RK @ RQ.T)
    root = np.sqrt(s)
    return UK @ (left * root), UQ @ (right.T * root)


def residual(measurements: RankOne, t: Array, K: Array, Q: Array) -> float:
    """||A(K Q') - t|| / ||t||."""
    gap = np.einsum("kr,kr->k", measurements.A @ K, measurements.B @ Q) - t
    size = float(np.linalg.norm(t))
    return float(np.linalg.norm(gap)) / size if size else float(np.linalg.norm(gap))


def alternating(
    measurements: RankOne, t: Array, rank: int, *, tolerance: float = 1e-12, max_iterations: int = 300
) -> Factored:
    """Fit a_k'K Q'b_k = t_k: spectral start, K and Q in turn by least squares, Gauss and Newton at the end.

    `converged` says that the misfit fell to `tolerance`; where it did not, the fit is a local minimum, the rank too
    small, or the measurements too noisy for the tolerance asked.
    """
    left, s, right = svd(measurements.adjoint(t) / len(measurements))
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
        U, s, V = svd(2 * X - Y, full_matrices=False)
        rank = int(np.sum(s > step))
        U, s, V = U[:, :rank], s[:rank] - step, V[:rank].T
        Z = (U * s) @ V.T
        Y += _RELAXATION * (Z - X)
        moved = float(np.linalg.norm(Z - X)) / (float(np.linalg.norm(X)) or 1.0)
    gap = _gap(measurements, t, X, y / step if step else y)
    return LeastNuclearNorm(U, s, V, X, gap, iteration, moved <= tolerance)


def _gap(measurements: RankOne, t: Array, X: Array, y: Array) -> float:
    """Relative duality gap: -t'y over the spectral norm of adjoint(y) is a lower bound on every feasible ||W||_*."""
    norm = float(np.linalg.norm(X, "nuc"))
    slope = float(np.linalg.norm(measurements.adjoint(y), 2))
    bound = abs(float(t @ y)) / max(slope, 1.0)
    return (norm - bound) / norm if norm else 0.0
