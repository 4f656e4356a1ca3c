"""Sums of exponentials G(q) = sum_h b_h exp(a_h . q) in several variables: how many, and which.

On a grid of sums q = p_i + r_j + s_k the values are a table of rank H in every unfolding: G = sum_h e_hi f_hj g_hk b_h,
and two slices of it have the frequencies as eigenvalues (a matrix pencil, as in ESPRIT).

Theory: docs/theory/membership.md, "Several heads".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import Dense, Descent, descend
from unsoftmax.solvers.singular import svd

SMALL = 1e-3
"""Values smaller than this share of the largest are fitted as if they were of that size: they are differences of larger
terms, and only these keep their digits."""

_STEEPEST = 50.0
"""Exponents beyond this on the way of a fit are cut off: such a step is refused anyway, and it must not overflow."""


def table_rank(table: Array, floor: float) -> int:
    """How many exponentials a table (I, J, K) shows: singular values above `floor` times the largest."""
    size = np.linalg.svd(table.reshape(len(table), -1), compute_uv=False)
    return int(np.sum(size > floor * size[0]))


def frequencies(table: Array, shifts: Array, H: int) -> Array | None:
    """a (H, d) from values (I, J, K) at p_i + r_j + s_k, p_0 = 0 and `shifts` (I - 1, d) the others; s_0 = 0, J >= H.

    None where the table is no sum of H exponentials with real exponents, or too nearly one of fewer.
    """
    U = svd(table.reshape(len(table), -1))[0][:, :H]
    first, second = (U.T @ table[:, :, k] for k in (0, 1))
    try:
        _, vectors = np.linalg.eig(second @ np.linalg.pinv(first))
    except np.linalg.LinAlgError:
        return None
    # Complex numbers even where all of them are real, from NumPy 2.5 on.
    if np.any(np.imag(vectors)):
        return None
    E = U @ np.real(vectors)
    if not np.all(np.abs(E[0]) > 0):
        return None
    E = E / E[0]
    if not np.all(np.isfinite(E)) or not np.all(E > 0):
        return None
    return np.asarray(np.linalg.lstsq(shifts, np.log(E[1:]), rcond=None)[0].T)


@dataclass(frozen=True, eq=False)
class _Sum:
    """Unknowns a (H, d) and b (H,), raveled; data q (n, d), G (n,); the b add up to `total`."""

    q: Array
    G: Array
    size: Array
    total: float
    H: int

    def split(self, x: Array) -> tuple[Array, Array]:
        d = self.q.shape[1]
        return x[: self.H * d].reshape(self.H, d), x[self.H * d :]

    def at(self, x: Array) -> Dense:
        a, b = self.split(x)
        e = np.exp(np.clip(self.q @ a.T, -_STEEPEST, _STEEPEST))
        J = np.concatenate([((e * b)[:, :, None] * self.q[:, None, :]).reshape(len(e), -1), e], axis=1)
        whole = np.zeros(J.shape[1])
        whole[-self.H :] = 1.0
        size = np.append(self.size, self.size.min())
        residual = np.append(e @ b - self.G, b.sum() - self.total)
        return Dense(residual / size, np.vstack([J, whole]) / size[:, None])


def fit_sum(a: Array, q: Array, G: Array, total: float) -> tuple[Array, Array, float]:
    """a (H, d), b (H,) and the root mean square of relative residuals, from a start a; G at 0 is `total`."""
    size = np.abs(G) + SMALL * np.abs(G).max()
    problem = _Sum(q, G, size, total, len(a))
    e = np.exp(np.clip(q @ a.T, -_STEEPEST, _STEEPEST))
    b = np.linalg.lstsq(e / size[:, None], G / size, rcond=None)[0]
    end = descend(problem, np.concatenate([a.ravel(), b]), Descent(1e-3, iterations=60))
    return *problem.split(end.x), float(np.sqrt(end.cost / len(G)))
