"""The ellipsoid on which points lie, with its centre: linear least squares in the entries of its matrix.

Theory: docs/theory/output-layer.md, "The output layer", a final norm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from unsoftmax.probes.base import Array
from unsoftmax.solvers.cross import NO_DIRECTION
from unsoftmax.solvers.singular import svd


@dataclass(frozen=True)
class Ellipsoid:
    """(z - centre)' metric (z - centre) = 1 on the affine span of the points; `gap`: the largest difference from 1."""

    metric: Array
    centre: Array
    dimension: int
    gap: float

    def off(self, z: Array) -> Array:
        """How far points (n, d) are from it: (z - centre)' metric (z - centre) - 1, (n,)."""
        x = z - self.centre
        return np.asarray(np.einsum("nd,de,ne->n", x, self.metric, x) - 1.0)


def unknowns(dimension: int) -> int:
    """Entries of the metric and of the centre."""
    return dimension * (dimension + 1) // 2 + dimension


def fit_ellipsoid(z: Array, noise: float = 0.0) -> Ellipsoid:
    """The ellipsoid through z (n, d); n must exceed `unknowns` of the dimension of the points' affine span.

    Points are centred at their mean and whitened, so that all columns of the least squares problem are of one size;
    `noise` is the spread that is taken for none.
    """
    n = len(z)
    mean = z.mean(axis=0)
    _, s, Vt = svd(z - mean, full_matrices=False)
    r = int(np.sum(s > max(NO_DIRECTION * s[0], 2 * noise)))
    whiten = Vt[:r] / (s[:r, None] / np.sqrt(n))
    x = (z - mean) @ whiten.T
    i, j = np.triu_indices(r)
    weight = np.where(i == j, 1.0, np.sqrt(2.0))
    design = np.hstack([x[:, i] * x[:, j] * weight, x])
    Q, R = np.linalg.qr(design)
    solution = solve_triangular(R, Q.T @ np.ones(n))
    M = np.zeros((r, r))
    M[i, j] = M[j, i] = solution[: len(i)] / weight
    # x'Mx + m'x = 1 is (x - c)'M(x - c) = 1 + c'Mc with c = -M^-1 m / 2.
    c = -np.linalg.solve(M, solution[len(i) :]) / 2
    M /= 1.0 + c @ M @ c
    found = Ellipsoid(whiten.T @ M @ whiten, mean + np.linalg.pinv(whiten) @ c, r, 0.0)
    return Ellipsoid(found.metric, found.centre, r, float(np.abs(found.off(z)).max()))
