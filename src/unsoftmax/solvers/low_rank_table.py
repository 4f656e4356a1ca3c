"""A matrix of low rank from a cross of its columns and rows."""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from unsoftmax.probes.base import Array
from unsoftmax.solvers.cross import negligible


def visible_rank(block: Array, noise: float) -> int:
    """Number of singular values that noise of this size in the entries does not explain."""
    s = np.linalg.svd(block, compute_uv=False)
    return int(np.sum(s > negligible(noise, len(s)) * max(float(s[0]), 1.0))) if len(s) else 0


def pivots(block: Array, rank: int) -> tuple[Array, Array]:
    """Indices of `rank` rows and `rank` columns that span the block best (greedily)."""
    columns = qr(block, mode="r", pivoting=True)[1][:rank]
    rows = qr(block[:, columns].T, mode="r", pivoting=True)[1][:rank]
    return np.asarray(rows), np.asarray(columns)


def from_cross(T: Array, rows: Array, columns: Array) -> Array:
    """The whole table from its measured columns and rows: C (T[rows, columns])^-1 R, through an orthogonal basis."""
    if not len(rows):
        return np.zeros_like(T)
    Q = np.linalg.qr(T[:, columns])[0]
    return np.asarray(Q @ np.linalg.solve(Q[rows], T[rows]))
