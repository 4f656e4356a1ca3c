"""How much more a token is worth in the last position: the one number that makes logits of pairs low rank.

y_ij = (w_ij a_i + a_j + c) / (w_ij + 1) for the pair [i, j], a known, c and log w (of low rank) not. With a wrong c the
logits have full rank; at the right one many singular values of a block of them vanish together. (One vanishes at
some c for any answers, so one is no evidence.)

Theory: docs/theory/token-access.md, "Token access", positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.cross import NO_DIRECTION
from unsoftmax.solvers.gauss_newton import STEPS
from unsoftmax.solvers.singular import svd

_SCAN = 400
"""Points of the scan, dense towards both ends of the feasible offsets: about thirty a decade, within which Newton
converges."""

_NULL = 1e-7
"""Singular values of the logits that vanish, relative to the largest, when c is nearly right."""

_TOGETHER = 3
"""So many singular values vanish together at the right offset; one alone may be small at a wrong one."""


@dataclass(frozen=True)
class Offset:
    """c and how far it may be off."""

    c: float
    error: float


def offset(y: Array, keys: Array, queries: Array, noise: float) -> Offset | None:
    """c from answers y (m, n), right within `noise`, to pairs of tokens with first values keys (m,) and queries (n,).

    None if no c makes the logits low rank.
    """
    lower, upper = _feasible(y, keys, queries)
    if not lower < upper or min(y.shape) <= _TOGETHER:
        return None
    # Logits diverge at the ends: scan densely inside and close to both.
    half = np.geomspace(1e-6, 0.5, _SCAN // 2)
    points = lower + (upper - lower) * np.concatenate([half, 1 - half[-2::-1]])
    c = float(points[np.argmin([_smallest(y, keys, queries, point)[0] for point in points])])
    size = np.inf
    for _ in range(STEPS):
        size, slope = _smallest(y, keys, queries, c)
        step = size / slope if slope else np.inf
        if not lower < c - step < upper:
            break
        c -= step
    return _refined(y, keys, queries, c, noise) if size < NO_DIRECTION else None


def _refined(y: Array, keys: Array, queries: Array, c: float, noise: float) -> Offset:
    """Least squares over the whole null space instead of one direction of it, and what noise leaves in the result."""
    error = np.inf
    for _ in range(2):
        shifted = y - queries - c
        left, sizes, right = svd(np.log(shifted / (keys[:, None] - y)))
        null = sizes < _NULL * sizes[0]
        U, V = left[:, null], right[null].T
        slope = -(U.T @ (1 / shifted) @ V)
        size = float((slope**2).sum())
        c -= float((slope * (U.T @ np.log(shifted / (keys[:, None] - y)) @ V)).sum()) / size
        # First-order error of a logit: noise in the answer, in the key's and in the query token's value.
        logit_error = 2 * noise * (1 / np.abs(shifted) + 1 / np.abs(keys[:, None] - y))
        error = float((np.abs(U @ slope @ V.T) * logit_error).sum()) / size
    return Offset(c, error)


def _feasible(y: Array, keys: Array, queries: Array) -> tuple[float, float]:
    """An answer lies between key and shifted query token, which bounds c from both sides."""
    room = y - queries
    above = y > keys[:, None]
    size = float(np.abs(y).max() + np.abs(keys).max() + np.abs(queries).max())
    return float(room[above].max(initial=-size)), float(room[~above].min(initial=size))


def _smallest(y: Array, keys: Array, queries: Array, c: float) -> tuple[float, float]:
    """The `_TOGETHER`-th smallest singular value of the logits relative to the largest, and its derivative in c."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.log((y - queries - c) / (keys[:, None] - y))
    if not np.isfinite(t).all():
        return 1.0, 0.0
    left, sizes, right = svd(t)
    k = -_TOGETHER
    slope = -left[:, k] @ (1 / (y - queries - c)) @ right[k]
    return float(sizes[k] / sizes[0]), float(slope / sizes[0])
