"""W from bilinear readings z'W q = s: many z at every q, or the same tokens in all pairs, where it is solved exactly.

Of any readings, least squares without forming the d^2 columns. Of (x1_l - x2_j)'W x2_j = T_lj column by column:
(X1 - 1 x2_j') (W x2_j) = T_j, a rank-one update of X1 (Sherman-Morrison), then W = U X2^-T; with bounds on what errors
in T and in v leave in it.

Theory: docs/theory/explanations.md, "Explanations", statement.
Theory: docs/theory/approximate.md, "The default".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsmr

from unsoftmax.probes.base import Array

_DIGITS = 1e-10
"""What one pass leaves of the gradient, relative: three passes at 1e-7 left errors of 1e-10 in W, at 1e-10 none."""

_PASSES = 3
"""Passes: the first two reach rounding, the third takes off what their own rounding left."""


_DENSE = 1300
"""Unknowns up to which the columns are formed: a hundredth of a second, where iterations would be slow to converge."""


def solve_bilinear(Z: Array, q: Array, s: Array, weights: Array) -> tuple[Array, float]:
    """W (d, d) minimising sum weights^2 (z'W q - s)^2 over Z (n, m, d), q (n, d), s and weights (n, m).

    Also the root mean square of the weighted misfit. Tokens are scaled to unit mean square first.
    """
    n, m, d = Z.shape
    scale = float(np.sqrt(np.mean(Z**2) * np.mean(q**2)))
    Z, q = Z / np.sqrt(np.mean(Z**2)), q / np.sqrt(np.mean(q**2))

    def forward(x: Array) -> Array:
        return np.asarray(((Z @ (q @ x.reshape(d, d).T)[:, :, None])[:, :, 0] * weights).ravel())

    def backward(r: Array) -> Array:
        pulled = ((r.reshape(n, m) * weights)[:, None, :] @ Z)[:, 0]
        return np.asarray((pulled.T @ q).ravel())

    A = LinearOperator((n * m, d * d), matvec=forward, rmatvec=backward, dtype=np.float64)
    target = (s * weights).ravel()
    x = np.zeros(d * d)
    if d * d <= _DENSE:
        design = (Z[:, :, :, None] * q[:, None, None, :]).reshape(n * m, d * d) * weights.reshape(-1, 1)
        x = np.linalg.lstsq(design, target, rcond=None)[0]
        return x.reshape(d, d) / scale, float(np.sqrt(np.mean((forward(x) - target) ** 2)))
    for _ in range(_PASSES):
        x = x + lsmr(A, target - forward(x), atol=_DIGITS, btol=_DIGITS, conlim=1e10, maxiter=40 * d)[0]
    misfit = float(np.sqrt(np.mean((forward(x) - target) ** 2)))
    return x.reshape(d, d) / scale, misfit


@dataclass(frozen=True, eq=False)
class TokenPairSystem:
    """X1, X2 (d, d), rows are tokens."""

    X1: Array
    X2: Array

    def solve(self, T: Array) -> Array:
        """W (d, d) from T (d, d)."""
        M = self._inverse1 @ T
        U = M + np.outer(self._z, np.einsum("jd,dj->j", self.X2, M) / self._denominators)
        return np.asarray(U @ self._inverse2.T)

    def noise_bound(self, radius: Array) -> float:
        """||error of W||_F if every T_lj is off by at most radius_lj.

        The smaller of two bounds: by singular values, sharp for tokens that are as good as orthogonal, and by
        Cauchy-Schwarz from the root mean square error, better if one direction is probed much more weakly than others.
        """
        first = _norm2(self._inverse1) * np.linalg.norm(radius)
        # Second term of Sherman-Morrison: z h_j' with h_j = X1^-T x2_j / denominator_j.
        h = np.linalg.norm(self.X2 @ self._inverse1, axis=1) / np.abs(self._denominators)
        second = np.linalg.norm(self._z) * np.linalg.norm(h * np.linalg.norm(radius, axis=0))
        return min(float((first + second) * _norm2(self._inverse2)), self.noise_rms(radius) * math.sqrt(radius.size))

    def noise_rms(self, sigma: Array) -> float:
        """Root mean square of ||error of W||_F if the errors of T are independent with deviations sigma_lj."""
        H = (self.X2 @ self._inverse1) / self._denominators[:, None]
        # Column l of A_j^-1 is G_l + z H_jl; its length squared for every l and j.
        G = self._inverse1
        z = self._z
        lengths = (G * G).sum(axis=0)[:, None] + 2 * (z @ G)[:, None] * H.T + (z @ z) * H.T**2
        columns = (self._inverse2**2).sum(axis=0)
        return float(np.sqrt((lengths * sigma**2 * columns[None, :]).sum()))

    def value_gain(self, P: tuple[Array, Array], Q: tuple[Array, Array]) -> float:
        """Largest ||error of W||_F per length of dv when T is off by diag(X1 dv) P + Q diag(X2 dv).

        P and Q are given as (low, high), elementwise intervals. Their mean acts coherently and nearly cancels
        (an error of v turns into an error of W of the same shape); only the fluctuation meets the worst case.
        """
        p, p_off = _mean_and_fluctuation(*P)
        q, q_off = _mean_and_fluctuation(*Q)
        turned = _norm2((self._inverse2 / self._denominators) @ self.X2) * np.linalg.norm(self._z)
        coherent = abs(p) * np.linalg.norm(self._inverse2.sum(axis=1)) + abs(p + q) * turned
        h = np.linalg.norm(self.X2 @ self._inverse1, axis=1) / np.abs(self._denominators)
        size = (_norm2(self._inverse1) + np.linalg.norm(self._z) * h.max()) * _norm2(self._inverse2)
        rows = _norm2(np.linalg.norm(p_off, axis=1)[:, None] * self.X1)
        columns = _norm2(np.linalg.norm(q_off, axis=0)[:, None] * self.X2)
        apart = np.linalg.norm(self.X1, axis=1)[:, None] * p_off + np.linalg.norm(self.X2, axis=1)[None, :] * q_off
        return float(coherent + min(size * (rows + columns), self.noise_bound(apart)))

    @cached_property
    def _inverse1(self) -> Array:
        return np.linalg.inv(self.X1)

    @cached_property
    def _inverse2(self) -> Array:
        return np.linalg.inv(self.X2)

    @cached_property
    def _z(self) -> Array:
        return np.asarray(self._inverse1.sum(axis=1))

    @cached_property
    def _denominators(self) -> Array:
        return np.asarray(1 - self.X2 @ self._z)


def _norm2(M: Array) -> float:
    return float(np.linalg.norm(M, 2))


def _mean_and_fluctuation(low: Array, high: Array) -> tuple[float, Array]:
    """Mean of the middles, and for every entry how far its interval reaches from that mean."""
    mean = float(np.mean((low + high) / 2))
    return mean, np.maximum(np.abs(low - mean), np.abs(high - mean))
