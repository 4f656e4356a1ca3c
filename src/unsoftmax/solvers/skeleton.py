"""SOLVE: a rank-r matrix from r of its columns and r of its rows, M = C G^-1 R, G where they cross.

Theory: docs/theory/membership.md, "One bit per bit", low rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Skeleton:
    """rows I (r,), columns J (r,), C = M[:, J] (d, r), R = M[I, :] (r, d); C[I] = R[:, J] = G."""

    rows: Array
    columns: Array
    C: Array
    R: Array

    @property
    def rank(self) -> int:
        return len(self.rows)

    @cached_property
    def left(self) -> Array:
        """X = C G^-1 (d, r): M = X R."""
        return np.linalg.solve(self.C[self.rows].T, self.C.T).T

    @property
    def matrix(self) -> Array:
        """M (d, d)."""
        return self.left @ self.R

    def reduced(self, tolerance: float) -> Skeleton:
        """With pivots of G at most `tolerance` left out: what is left when the rank was given too large."""
        i, j = pivots(self.C[self.rows], self.rank, tolerance)
        return Skeleton(self.rows[i], self.columns[j], self.C[:, j], self.R[i])

    @cached_property
    def right(self) -> Array:
        """Y = G^-1 R (r, d): M = C Y."""
        return np.linalg.solve(self.C[self.rows], self.R)

    def amplification(self, rows: Array, columns: Array) -> Array:
        """Weights (n,): independent errors e of these entries move M by the root sum of squares of weights * e.

        To first order, which is what `moved` says of one entry at a time; 0 outside the cross.
        """
        x, y = np.ones(len(self.C)), np.ones(len(self.C))
        x[self.rows] = np.linalg.norm(self.left, axis=0)
        y[self.columns] = np.linalg.norm(self.right, axis=1)
        in_rows, in_columns = np.isin(rows, self.rows), np.isin(columns, self.columns)
        x, y = x[rows], y[columns]
        # Where a row and a column cross, the entry counts in both and is taken off once.
        crossing = np.sqrt(1 + (x**2 - 1) * (y**2 - 1))
        return np.select([in_rows & in_columns, in_rows, in_columns], [crossing, x, y], 0.0)

    def moved(self, D: Array) -> Array:
        """First-order change of M (d, d) when the entries of the cross change by D (d, d)."""
        X, Y = self.left, self.right
        DC, DR = D[:, self.columns], D[self.rows]
        return np.asarray(DC @ Y + X @ (DR - DC[self.rows] @ Y))


def pivots(G: Array, most: int, tolerance: float) -> tuple[Array, Array]:
    """Rows and columns of up to `most` pivots, the largest remaining entry each; stops at entries <= tolerance."""
    rest = np.array(G, dtype=np.float64)
    rows, columns = [], []
    for _ in range(min(most, *G.shape)):
        i, j = np.unravel_index(np.argmax(np.abs(rest)), rest.shape)
        if not abs(rest[i, j]) > tolerance:
            break
        rows.append(i)
        columns.append(j)
        rest = rest - np.outer(rest[:, j], rest[i]) / rest[i, j]
        rest[i], rest[:, j] = 0.0, 0.0
    return np.array(rows, dtype=int), np.array(columns, dtype=int)
