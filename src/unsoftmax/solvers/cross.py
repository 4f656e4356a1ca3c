"""SOLVE: a low-rank matrix from its action on a few vectors and a few rows of what is left.

W B is known for k vectors b (the columns phase), A W on the unit vectors outside (the rows phase); W = U M.

A matrix of low rank from a cross of its columns and rows: its rank, which rows carry it, and the whole of it.

The one choice of pivots for tables that are read entry by entry. Brackets of labels have pivots of their own
(skeleton.py): entries there are intervals, and the largest is taken.

Theory: docs/theory/low-rank.md, "Chosen probes".
Theory: docs/theory/transformer.md, "Rays".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular

from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd

NO_DIRECTION = 1e-9
"""Singular value, over the largest, of a direction that float64 answers do not show: products of factors are known to
more digits than this, or kept in full."""

SAFETY = 150.0
"""Noise may reach a residual multiplied by the norm of the inverse of a k x k random matrix: sqrt k, with a heavy
tail. This multiple of sqrt k covers the tail; directions weaker than that are below what the answers can show."""

SPURIOUS = 10.0
"""A direction that W does not have comes out of the rows phase at a few times the noise of an entry."""


def negligible(noise: float, k: int) -> float:
    """Largest residual, relative to a typical score, that noise of this relative size explains after k columns."""
    return SAFETY * math.sqrt(k + 1) * noise


@dataclass(frozen=True, eq=False)
class Columns:
    """What W did to B (k, d): C = W B' (d, k), and U (d, k) orthonormal with the same span.

    Row i of B is zero at order[:i] and large at order[i], so the block at order[:k] is triangular and well conditioned.
    """

    order: Array
    B: Array
    C: Array
    U: Array

    @classmethod
    def none(cls, order: Array) -> Columns:
        d = len(order)
        return cls(order, np.zeros((0, d)), np.zeros((d, 0)), np.zeros((d, 0)))

    @property
    def rank(self) -> int:
        """Number of columns k."""
        return len(self.B)

    @property
    def rest(self) -> Array:
        """Coordinates outside the triangular block, (d - k,)."""
        return np.sort(self.order[self.rank :])

    def with_column(self, b: Array, c: Array) -> Columns:
        """One column more: c = W b."""
        once = c - self.U @ (self.U.T @ c)
        u = outside(self.U, once)
        size = np.linalg.norm(u)
        # A column inside the span (a rank given too large) adds any new direction; W has nothing along it. So does one
        # whose rest shrinks again: that was rounding inside the span, and what is left of it is not orthogonal.
        new = size > 0.5 * np.linalg.norm(once)
        u = u / size if new else _any_direction(self.U)
        return Columns(self.order, np.vstack([self.B, b]), np.column_stack([self.C, c]), np.column_stack([self.U, u]))


def outside(U: Array, x: Array) -> Array:
    """Part of x (d,) orthogonal to the orthonormal columns of U; twice, so that it is orthogonal to rounding."""
    for _ in range(2):
        x = x - U @ (U.T @ x)
    return x


def _any_direction(U: Array) -> Array:
    candidates = np.eye(len(U))[np.argsort(np.einsum("ij,ij->i", U, U), kind="stable")[:1]]
    u = outside(U, candidates[0])
    return np.asarray(u / np.linalg.norm(u))


def next_column(order: Array, k: int, length: float, rng: np.random.Generator) -> Array:
    """A random b (d,) of norm at most `length` (a power of two), zero at order[:k] and length / 2 at order[k].

    The rest is uniform, so that no W, sparse or structured, is blind to it except by chance.
    """
    d = len(order)
    b = np.zeros(d)
    b[order[k]] = length / 2
    b[order[k + 1 :]] = rng.uniform(-1, 1, d - k - 1) * (length / 2 * math.sqrt(3 / d))
    return b


def mixing(columns: Columns, v: Array, rng: np.random.Generator) -> Array:
    """Rows (k, d) that read all of span U equally: Z U' + 1 v'/|v|, Z orthogonal with Z U'v = const.

    Random Z spreads the energy of W evenly over the rows; all rows have the same a . v, never below |v|.
    """
    k = columns.rank
    Z = np.linalg.qr(rng.standard_normal((k, k)))[0]
    g = Z @ (columns.U.T @ v)
    size = np.linalg.norm(g)
    if k > 1 and size > 0:
        # Reflect g onto the positive diagonal, where it adds to the shift and cannot cancel it.
        h = g / size - 1 / math.sqrt(k)
        length = h @ h
        if length > 1e-30:
            Z = Z - np.outer(h, h @ Z) * (2 / length)
    elif k == 1 and g[0] < 0:
        Z = -Z
    return np.asarray(Z @ columns.U.T + v / np.linalg.norm(v))


def assemble(columns: Columns, A: Array, T: Array) -> Array:
    """M (k, d) with W = U M, from T = A W (k, d - k) on the unit vectors of `columns.rest`."""
    k, rest = columns.rank, columns.rest
    M = np.empty((k, len(columns.order)))
    M[:, rest] = np.linalg.solve(A @ columns.U, T)
    block = columns.order[:k]
    known = columns.U.T @ columns.C - M[:, rest] @ columns.B[:, rest].T
    # M_block B_block' = known; B_block (row i zero before i) is upper triangular.
    M[:, block] = solve_triangular(columns.B[:, block], known.T).T
    return M


def factors(U: Array, M: Array, threshold: float) -> tuple[Array, Array]:
    """Balanced K, Q (d, r) with K Q' = U M; singular values at most threshold ||W||_F are dropped."""
    V, R = np.linalg.qr(M.T)
    left, s, right = svd(R.T)
    r = int(np.sum(s > threshold * np.linalg.norm(s)))
    root = np.sqrt(s[:r])
    return U @ (left[:, :r] * root), V @ (right[:r].T * root)


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
    U = svd(columns, full_matrices=False)[0][:, :rank]
    return np.asarray(U @ np.linalg.lstsq(U[at], rows, rcond=None)[0])
