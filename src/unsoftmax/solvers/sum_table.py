"""Heads told apart by a table of sums: the denominators of a softmax add, so 1/alpha_h = X_h(i) + Y_h(j).

Answers to sequences [n'_j, n_i, x, q] in which only x writes are A alpha, A = [P_1 x ... P_H x]. Whatever the scores
are, 1 / alpha_h at the cell (i, j) is what the token n_i adds plus what n'_j adds. Two Jacobians in n at the same
token, beside two different n', have the same gradients and other diagonals, so J_2 J_1^-1 has the columns of A as
eigenvectors; then each row a_h of A^-1 is refined alone, on a_h . F_ij = 1 / (X_i + Y_j). Two directions beside H
different n' serve as well, and where heads that share keys are more than keys have dimensions only they do.

Theory: docs/theory/attention-layer.md, "Layers of language models", heads apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import Dense, Descent, descend
from unsoftmax.solvers.singular import svd

_HOW = Descent(damping=1e-4, down=20.0, up=10.0, iterations=60, patience=4, gain=0.999)
"""From a fair start a few steps suffice, and a row that has not settled after sixty is not a head's."""

_TWINS = 1 - 1e-6
"""Cosine of two rows from which on they are one head found twice."""

_REAL = 1e-2
"""Imaginary part, relative to the largest eigenvalue, that differences of rounded answers may leave."""


_LARGEST = 1 / (1 + np.exp(-np.linspace(-7, 12, 400)))
"""Weights that the others may take together in the cell where they take most: logits from -7 to 12 in steps of 0.05,
near enough for Levenberg-Marquardt to start from."""


_LEAST = 1e-5
"""Weight over the last token's that others take at least in a table of what it loses."""


@dataclass(frozen=True, eq=False)
class SumTable:
    """rows (H, H): rows @ answers are the weights; sums (H, cells): 1/alpha_h in every cell; residual: rms misfit.

    rise: by how much noise, relative to the largest answer, rises to what the others weigh, sums - 1, at worst.
    """

    rows: Array
    sums: Array
    residual: float
    rise: float


def separate(J1: Array, J2: Array, F: Array, cells: Array, whole: Array | None) -> SumTable | None:
    """F (cells, H) answers in coordinates of their span, cells (cells, 2) their indices (j, i); None if it fails.

    whole (H,): the sum of the columns of A in the same coordinates, which sets the scale of every head. None: F shows
    what the token loses, A (1 - alpha), whose bend sets the scale.
    """
    values, vectors = np.linalg.eig(J2 @ np.linalg.pinv(J1))
    if np.abs(values.imag).max() > _REAL * np.abs(values).max():
        return None
    columns = np.real(vectors)
    if np.linalg.cond(columns) > 1e12:
        return None
    rows = np.linalg.inv(columns) if whole is None else np.linalg.inv(columns * np.linalg.solve(columns, whole))
    sums, worst, rise = np.zeros((len(rows), len(F))), 0.0, 0.0
    for h in range(len(rows)):
        found = _refined(rows[h], F, cells, whole)
        if found is None:
            return None
        rows[h], sums[h], residual, raised = found
        if whole is None and sums[h].min() <= 1 + _LEAST:
            # Nothing is lost where nothing is looked at: a = 0 solves the equations too.
            return None
        worst, rise = max(worst, residual), max(rise, raised)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    if len(rows) > 1 and np.abs(np.tril(unit @ unit.T, -1)).max() > _TWINS:
        return None
    return SumTable(rows, sums, worst, rise)


@dataclass(frozen=True, eq=False)
class _Table:
    """base + F y = 1 / (design sums) in every cell: unknowns y, then the sums X_i and Y_j."""

    F: Array
    base: Array
    design: Array

    @np.errstate(over="ignore", invalid="ignore")
    def at(self, x: Array) -> Dense:
        k = self.F.shape[1]
        sums = self.design @ x[k:]
        J = np.column_stack([self.F, self.design / (sums * sums)[:, None]])
        if not ((sums > 0).all() and np.isfinite(J).all()):
            return Dense(np.full(1, np.inf), np.zeros((1, len(x))))
        return Dense(self.base + self.F @ x[:k] - 1 / sums, J)


def _refined(a: Array, F: Array, cells: Array, whole: Array | None) -> tuple[Array, Array, float, float] | None:
    """Levenberg-Marquardt on a . F_c = 1 / (X_i + Y_j) with a . whole = 1; (a, sums (cells,), rms residual, rise).

    Without `whole` on 1 - a . F_c instead, a free. Where there is no table, sums may run away: steps beyond all numbers
    are not taken.
    """
    (nj, ni) = cells.max(axis=0) + 1
    design = np.zeros((len(F), nj + ni))
    design[np.arange(len(F)), cells[:, 0]] = 1
    design[np.arange(len(F)), nj + cells[:, 1]] = 1
    # X + t and Y - t are the same table: the last Y is 0.
    design = np.delete(design, nj - 1, axis=1)
    if whole is None:
        a = _bent(a, F, design)
        free, start, F, lost = np.eye(len(a)), np.zeros(len(a)), -F, 1.0
    else:
        free, start, lost = svd(whole[None])[2][1:].T, whole / (whole @ whole), 0.0
    alpha = np.clip(lost + F @ a, 1e-3, None)
    u = np.linalg.lstsq(design * (alpha**2)[:, None], alpha, rcond=None)[0]
    table = _Table(F @ free, lost + F @ start, design)
    end = descend(table, np.concatenate([free.T @ (a - start), u]), replace(_HOW, arrived=1e-33 * len(F)))
    if not np.isfinite(end.cost):
        return None
    k = free.shape[1]
    a, sums = start + free @ end.x[:k], design @ end.x[k:]
    noise = float(np.linalg.norm(a) * np.linalg.norm(F, axis=1).max())
    moved = np.linalg.norm(design @ np.linalg.pinv(table.at(end.x).J)[k:], axis=1)
    # Beside a head that looks at one token alone next to nothing is left of what the others weigh.
    rise = noise * float((moved / np.maximum(np.abs(sums - 1), 1e-300)).max())
    return a, sums, float(np.sqrt(end.cost / len(F))), rise


def _bent(a: Array, F: Array, design: Array) -> Array:
    """a scaled so that 1 / (1 - a . F_c) is nearest to a table of sums, by a scan of the largest a . F_c."""
    lost = F @ a
    lost = lost / lost[np.argmax(np.abs(lost))]
    outside = np.eye(len(F)) - design @ np.linalg.pinv(design)
    best, scale = np.inf, 1.0
    for largest in _LARGEST:
        sums = 1 / (1 - largest * lost)
        miss = float(np.linalg.norm(outside @ sums) / np.linalg.norm(sums - sums.mean()))
        if (sums > 0).all() and miss < best:
            best, scale = miss, largest
    return np.asarray(a * scale / (F @ a)[np.argmax(np.abs(F @ a))])
