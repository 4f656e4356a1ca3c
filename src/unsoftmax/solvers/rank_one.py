"""The map W -> (a_k'W b_k)_k of rank-one measurements, applied as products of A (m, d) and B (m, d).

Theory: docs/theory/low-rank.md, "Random probes".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, lsqr

from unsoftmax.probes.base import Array


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


def solve_left(measurements: RankOne, t: Array, K: Array, Q: Array) -> Array:
    """Least squares for K (d, r) in a_k'K (Q'b_k) = t_k, starting from K, without forming the m x dr system."""
    A, right = measurements.A, measurements.B @ Q
    d, r = K.shape
    operator = LinearOperator(
        (len(A), d * r),
        matvec=lambda x: np.einsum("kr,kr->k", A @ x.reshape(d, r), right),
        rmatvec=lambda y: (A.T @ (y[:, None] * right)).ravel(),
        dtype=np.float64,
    )
    return np.asarray(lsqr(operator, t, atol=1e-14, btol=1e-14, iter_lim=200, x0=K.ravel())[0]).reshape(d, r)


def gauss_newton(measurements: RankOne, t: Array, K: Array, Q: Array) -> tuple[Array, Array]:
    """One step for K and Q together: K dQ' + dK Q' fitted to what K Q' leaves of t (least-norm, by LSQR)."""
    A, B = measurements.A, measurements.B
    left, right = A @ K, B @ Q
    d, r = K.shape

    def matvec(x: Array) -> Array:
        dK, dQ = x.reshape(2, d, r)
        return np.asarray(np.einsum("kr,kr->k", A @ dK, right) + np.einsum("kr,kr->k", B @ dQ, left))

    def rmatvec(y: Array) -> Array:
        return np.concatenate([(A.T @ (y[:, None] * right)).ravel(), (B.T @ (y[:, None] * left)).ravel()])

    operator = LinearOperator((len(A), 2 * d * r), matvec=matvec, rmatvec=rmatvec, dtype=np.float64)
    rest = t - np.einsum("kr,kr->k", left, right)
    dK, dQ = lsqr(operator, rest, atol=1e-14, btol=1e-14, iter_lim=400)[0].reshape(2, d, r)
    return K + dK, Q + dQ


def balanced(K: Array, Q: Array) -> tuple[Array, Array]:
    """The same K Q' with factors of equal singular values."""
    UK, RK = np.linalg.qr(K)
    UQ, RQ = np.linalg.qr(Q)
    left, s, right = np.linalg.svd(RK @ RQ.T)
    root = np.sqrt(s)
    return UK @ (left * root), UQ @ (right.T * root)


def residual(measurements: RankOne, t: Array, K: Array, Q: Array) -> float:
    """||A(K Q') - t|| / ||t||."""
    gap = np.einsum("kr,kr->k", measurements.A @ K, measurements.B @ Q) - t
    size = float(np.linalg.norm(t))
    return float(np.linalg.norm(gap)) / size if size else float(np.linalg.norm(gap))
