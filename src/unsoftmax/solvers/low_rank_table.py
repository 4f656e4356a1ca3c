"""A matrix of low rank from a cross of its columns and rows: its rank, which rows carry it, and the whole of it.

The one choice of pivots for tables that are read entry by entry. Brackets of labels have pivots of their own
(skeleton.py): entries there are intervals, and the largest is taken.

Theory: docs/theory/transformer.md, "Rays".
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from unsoftmax.probes.base import Array
from unsoftmax.solvers.cross import negligible


def visible_rank(block: Array, noise: float) -> int:
    """Number of singular values that noise of this size in the entries does not explain."""
    s = np.linalg.svd(block, compute_uv=False)
    return int(np.sum(s > negligible(noise, len(s)) * max(float(s[0]), 1.0))) if len(s) else 0


def pivot_rows(M: Array) -> Array:
    """Rows of M (n, k), the first of which span it best: each is the one that is farthest from those before."""
    return np.asarray(qr(M.T, mode="r", pivoting=True)[1])


def pivots(block: Array, rank: int) -> tuple[Array, Array]:
    """Indices of `rank` rows and `rank` columns that span the block best."""
    columns = pivot_rows(block.T)[:rank]
    return pivot_rows(block[:, columns])[:rank], columns


def completed(columns: Array, rows: Array, at: Array, rank: int) -> Array:
    """The matrix (m, d) of this rank from `columns` (m, c) of it and its `rows` (k, d), which stand at `at` (k,)."""
    if rank == 0:
        return np.zeros((len(columns), rows.shape[1]))
    U = np.linalg.svd(columns, full_matrices=False)[0][:, :rank]
    return np.asarray(U @ np.linalg.lstsq(U[at], rows, rcond=None)[0])
