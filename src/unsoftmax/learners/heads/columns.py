"""One logit per entry of W: all columns of a full-rank head, or a cross of columns and rows at its degrees of freedom.

Low rank (as in Theorem 5.1's class, with chosen probes): columns W b until the next is predicted by those before,
then only as many rows as the rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import qr

from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array

_CHECKS = 2
"""Entries of a new column, beyond as many as the rank so far, that must be predicted before the rank is believed: two,
since one may be right by chance."""

_OVERSAMPLE = 1
"""Columns and pivot rows read beyond the rank: one more softens a badly placed cross."""

_PREDICTED = 1e-8
"""Gap of a predicted entry, relative to the largest and times the growth of the prediction, that is none: half the
digits of float64; coarser answers have 1e4 units of their noise."""


class Table(Protocol):
    """A matrix z_i'W b_j that is read entry by entry: F (p, d) is NaN where nothing was asked."""

    F: Array

    def logits(self) -> Array:
        """z_i'W b_j (p, d), NaN where not read."""

    def read(self, rows: Array, columns: Array) -> Asking[None]:
        """Ask the entries (rows[k], columns[k])."""


@dataclass(frozen=True, eq=False)
class Cross:
    """What was read of a table: `columns` in full, `rows` in every column, the rank; `full`: everything."""

    rank: int
    columns: Array
    rows: Array
    full: bool

    def completed(self, columns: Array, rows: Array) -> Array:
        """The whole matrix (m, d) of rank r from its chosen `columns` (m, c) and chosen `rows` (k, d)."""
        if self.full:
            return columns
        U = np.linalg.svd(columns, full_matrices=False)[0][:, : self.rank]
        return np.asarray(U @ np.linalg.lstsq(U[self.rows], rows, rcond=None)[0])


def read_cross(entries: Table, noise: float, rank: int | None) -> Asking[Cross]:
    """Read the free rows of one head, `rank` given or found (None)."""
    p, d = entries.F.shape
    every = np.arange(p)
    if rank is None or rank < p - _CHECKS:
        found, columns = yield from _columns_until_predicted(entries, noise, rank)
        if found < p - _CHECKS:
            return (yield from _rows(entries, found, columns))
    left = np.flatnonzero(np.isnan(entries.F[0])) if np.isnan(entries.F[0]).any() else np.arange(0)
    if len(left):
        yield from entries.read(np.tile(every, len(left)), np.repeat(left, p))
    return Cross(d, np.arange(d), every, True)


def _columns_until_predicted(entries: Table, noise: float, rank: int | None) -> Asking[tuple[int, list[int]]]:
    """Full columns 0, 1, ... until the next is predicted from pivot rows, or `rank` of them."""
    p, d = entries.F.shape
    every = np.arange(p)
    limit = d if rank is None else min(rank, d)
    columns: list[int] = []
    while len(columns) < limit:
        j = k = len(columns)
        rest = every
        if rank is None and 0 < k < p - _CHECKS:
            T = entries.logits()[:, columns]
            Q = np.linalg.qr(T)[0]
            pivots = qr(Q.T, pivoting=True, mode="economic")[2]
            asked = pivots[: k + _CHECKS]
            yield from entries.read(asked, np.full(len(asked), j))
            t = entries.logits()[:, j]
            weights = np.linalg.solve(Q[pivots[:k]], t[pivots[:k]])
            checks = pivots[k : k + _CHECKS]
            gap = np.abs(Q[checks] @ weights - t[checks]).max()
            if gap <= max(_PREDICTED, 1e4 * noise) * np.abs(T).max() * max(1.0, _growth(Q, pivots[:k])):
                return k, columns
            rest = pivots[k + _CHECKS :]
        yield from entries.read(rest, np.full(len(rest), j))
        columns.append(j)
    return (d if rank is None else limit), columns


def _growth(Q: Array, pivots: Array) -> float:
    """How much the pivot rows amplify errors."""
    return float(np.linalg.norm(np.linalg.inv(Q[pivots]), 2)) if len(pivots) else 1.0


def _rows(entries: Table, rank: int, columns: list[int]) -> Asking[Cross]:
    """One column to spare, then the pivot rows (one to spare) in all other columns."""
    p, d = entries.F.shape
    for j in range(len(columns), min(rank + _OVERSAMPLE, d)):
        missing = np.flatnonzero(np.isnan(entries.F[:, j]))
        yield from entries.read(missing, np.full(len(missing), j))
        columns.append(j)
    U = np.linalg.svd(entries.logits()[:, columns], full_matrices=False)[0][:, :rank]
    rows = np.sort(qr(U.T, pivoting=True, mode="economic")[2][: min(p, rank + _OVERSAMPLE)])
    i, j_all = np.nonzero(np.isnan(entries.F[rows]))
    yield from entries.read(rows[i], j_all)
    return Cross(rank, np.array(columns), rows, len(columns) == d)
