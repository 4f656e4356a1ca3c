"""Ranks, ranges and supports read off noisy matrices by their singular values.

Linear systems whose matrix is a multiple of an orthogonal one up to the rounding of a grid.

Theory: docs/theory/reading.md, "Sums of learned parts", ranks and ranges.
Theory: docs/theory/reading.md, "Sums of learned parts", bases and grids.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd


@dataclass(frozen=True, eq=False)
class Range:
    """Column space of a matrix: orthonormal `basis` (n, rank); `clear` if a gap in the spectrum sets it apart.

    `beyond` and `weakest`: largest singular value outside the basis and smallest inside, relative to the largest.
    """

    basis: Array
    clear: bool
    beyond: float
    weakest: float = 1.0

    @property
    def rank(self) -> int:
        return self.basis.shape[1]


LEAST_GAP = 30.0
"""Ratio of neighbouring singular values from which on there is a gap between them: values and noise of random
matrices stay within a factor of ten of their neighbours."""

_AT_NOISE = 10.0
"""Largest singular value of noise over the noise of the answers, relative to the largest of all: float32 layers at
d = 256 leave 1 to 3."""


def widest_gap(sizes: Array, below: float) -> tuple[int, float]:
    """How many singular values (n,), largest first, stand above the largest ratio of neighbours whose lower one is
    `below` the first, relative; and that ratio. All of them, and 0, where none is."""
    relative = np.maximum(sizes / max(float(sizes[0]), 1e-300), 1e-16)
    ratios = np.where(relative[1:] < below, relative[:-1] / relative[1:], 0.0)
    return (int(np.argmax(ratios)) + 1, float(ratios.max())) if ratios.any() else (len(sizes), 0.0)


def floor_for(noise: float) -> float:
    """Relative singular value below which a direction is taken for noise: 1e-8 in float64, 3e-3 in float32."""
    return min(max(1e-8, 3e4 * noise), 0.1)


def column_range(M: Array, noise: float, *, spare: int = 2, rank: int | None = None) -> Range:
    """Range of M (n, m) whose entries carry the relative `noise`; the rank is the widest gap of the spectrum.

    Clear: at least `spare` columns beyond the rank (unless it cannot be larger) and a gap of two thirds of the digits
    that the noise leaves. A given `rank` is taken, and then clear says that nothing but noise lies beyond it.
    """
    U, s, _ = svd(M, full_matrices=False)
    if s[0] == 0:
        return Range(U[:, :0], True, 0.0)
    relative = np.maximum(s / s[0], 1e-300)
    if rank is None:
        gaps = relative[:-1] / np.maximum(relative[1:], noise)
        # Full rank shows no gap: with columns to spare it is what remains.
        allowed = np.where(relative[1:] < floor_for(noise), gaps, 0.0)[: max(0, M.shape[1] - spare)]
        rank = int(np.argmax(allowed)) + 1 if len(allowed) else len(s)
        # Where all that is left lies at the noise, a gap of its least size is enough.
        noisy = rank < len(s) and relative[rank] <= _AT_NOISE * noise
        least = LEAST_GAP if noisy else max(LEAST_GAP, (1 / max(noise, 1e-15)) ** 0.27)
        if len(allowed) == 0 or allowed[rank - 1] < least:
            full = min(M.shape)
            return Range(U[:, :full], full == M.shape[0] and M.shape[1] >= full + spare, 0.0)
        return Range(U[:, :rank], True, float(relative[rank]) if rank < len(s) else 0.0, float(relative[rank - 1]))
    rank = min(rank, len(s))
    beyond = float(relative[rank]) if rank < len(s) else 0.0
    return Range(U[:, :rank], beyond < floor_for(noise), beyond, float(relative[rank - 1]))


def support(responses: Array, coefficients: Array, floor: float) -> tuple[Array, float, float] | None:
    """Which tokens the responses (n, J) depend on when token i moved by coefficients[i, j] in probe j.

    The row space of the responses is spanned by the coefficient rows of the tokens that matter. Returns their
    indices, the largest residual among them and the smallest outside; None if the rank leaves no spare column.
    """
    _, s, Vt = svd(responses, full_matrices=False)
    rank = int((s > floor * s[0]).sum()) if s[0] > 0 else 0
    if rank == 0 or rank > responses.shape[1] - 3:
        return None
    inside = coefficients @ Vt[:rank].T
    residual = np.linalg.norm(coefficients - inside @ Vt[:rank], axis=1) / np.linalg.norm(coefficients, axis=1)
    order = np.argsort(residual, kind="stable")
    return np.sort(order[:rank]), float(residual[order[rank - 1]]), float(residual[order[rank]])


def solve_orthogonal(A: Array, b: Array) -> Array:
    """x with A x = b for A (d, d) near a multiple of an orthogonal matrix, b (d, ...), to rounding, however coarse the
    grid is that A lies on.

    Elimination would lose two digits here: orthogonal matrices are among those whose pivots grow.
    """
    Q, R = np.linalg.qr(A)
    x = np.linalg.solve(R, Q.T @ b)
    return np.asarray(x + np.linalg.solve(R, Q.T @ (b - A @ x)))
