"""Adaptive cross approximation of the gaps of a token head.

Rows of differences S_i - S_i0 have rank r, so every row of gaps is an affine combination of r + 1 rows of them:
G_i = sum_p z_ip G_p, sum_p z_ip = 1, and r columns give the z. The known zero diagonal checks the result for every
token without a query.

Theory: docs/theory/token-access.md, "Token access", method.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsoftmax.precision import EPS
from unsoftmax.probes.base import Array


@dataclass(eq=False)
class Cross:
    """What was read: rows (p + 1, n) of gaps at `keys`, the first being the reference, and columns (n, p) at `queries`.

    Radii have the same shapes.
    """

    keys: list[int]
    rows: Array
    row_radii: Array
    queries: list[int]
    columns: Array
    column_radii: Array

    @property
    def used(self) -> Array:
        """Tokens that already serve as a row or a column."""
        return np.array(sorted({*self.keys, *self.queries}), dtype=np.int64)

    def add_row(self, key: int, level: Array, radius: Array) -> None:
        self.keys.append(key)
        self.rows = np.vstack([self.rows, level])
        self.row_radii = np.vstack([self.row_radii, radius])

    def add_column(self, query: int, level: Array, radius: Array) -> None:
        self.queries.append(query)
        self.columns = np.column_stack([self.columns, level])
        self.column_radii = np.column_stack([self.column_radii, radius])

    def sync(self) -> None:
        """Entries that lie in a row and in a column are one number: the better reading holds in both."""
        keys, queries = np.array(self.keys, dtype=np.int64), np.array(self.queries, dtype=np.int64)
        if not len(queries):
            return
        inner = np.ix_(np.arange(len(keys)), queries)
        mirrored = keys
        better = self.column_radii[mirrored] < self.row_radii[inner]
        level = np.where(better, self.columns[mirrored], self.rows[inner])
        radius = np.where(better, self.column_radii[mirrored], self.row_radii[inner])
        self.rows[inner], self.row_radii[inner] = level, radius
        self.columns[mirrored], self.column_radii[mirrored] = level, radius

    def copy(self) -> Cross:
        arrays = (self.rows.copy(), self.row_radii.copy(), self.columns.copy(), self.column_radii.copy())
        return Cross(list(self.keys), *arrays[:2], list(self.queries), *arrays[2:])

    def restore(self, before: Cross, after: Cross) -> None:
        """Undo what changed from `before` to `after`, except entries that were read again since."""
        p, q = len(before.keys), len(before.queries)
        for name, part in (("row", np.s_[:p]), ("column", np.s_[:, :q])):
            level, radius = getattr(self, f"{name}s")[part], getattr(self, f"{name}_radii")[part]
            implied = (level == getattr(after, f"{name}s")) & (radius == getattr(after, f"{name}_radii"))
            level[implied] = getattr(before, f"{name}s")[implied]
            radius[implied] = getattr(before, f"{name}_radii")[implied]
        self.sync()

    def fit(self) -> Fit:
        """Affine weights of every token from the columns read; needs as many columns as rows beside the reference."""
        n, p = self.columns.shape
        weights = np.zeros((n, p + 1))
        U = np.zeros((0, 0))
        if p:
            U = (self.rows[1 : p + 1] - self.rows[0])[:, self.queries]
            C = self.columns - self.rows[0, self.queries]
            weights[:, 1:] = np.linalg.solve(U.T, C.T).T
        weights[:, 0] = 1 - weights[:, 1:].sum(axis=1)
        weights[self.keys[: p + 1]] = np.eye(p + 1)
        return Fit(self, weights, U)


@dataclass(frozen=True, eq=False)
class Fit:
    """G = weights rows: weights (n, p + 1) sum to one in each row."""

    cross: Cross
    weights: Array
    U: Array

    @property
    def rows(self) -> Array:
        return self.cross.rows[: self.weights.shape[1]]

    def at(self, keys: Array, queries: Array) -> Array:
        """Predicted gaps at entries (m,)."""
        return np.asarray(np.einsum("mp,pm->m", self.weights[keys], self.rows[:, queries]))

    def diagonal(self) -> Array:
        """Predicted gaps (j, j), which are 0 in truth."""
        return np.asarray(np.einsum("jp,pj->j", self.weights, self.rows))

    @cached_property
    def errors(self) -> tuple[Array, Array]:
        """Factors (n, m) of a first-order bound on |predicted - true| from the radii of what was read."""
        left, right = self.weight_errors
        # Rounding of the solve and of the product: a few units each.
        row_radii = self.cross.row_radii[: self.weights.shape[1]] + 4 * EPS * np.abs(self.rows)
        return np.hstack([np.abs(self.weights), left]), np.vstack([row_radii, right]).T

    @cached_property
    def weight_errors(self) -> tuple[Array, Array]:
        """The part of `errors` that comes from the weights: (n, p) and (p, n)."""
        p = self.weights.shape[1] - 1
        size = np.abs(self.weights)
        at_columns = self.cross.column_radii + size @ self.cross.row_radii[: p + 1, self.cross.queries]
        at_columns += 4 * EPS * (size[:, 1:] @ np.abs(self.U))
        at_columns[self.cross.keys[: p + 1]] = 0.0
        basis = np.linalg.solve(self.U, self.rows[1:] - self.rows[0]) if p else self.rows[:0]
        return at_columns, np.abs(basis)

    def bounds(self, keys: Array, queries: Array) -> Array:
        """The bound of `errors` at entries (m,)."""
        left, right = self.errors
        return np.asarray(np.einsum("mp,mp->m", left[keys], right[queries]))
