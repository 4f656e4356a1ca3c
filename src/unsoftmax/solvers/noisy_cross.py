"""Cross scheme under noise: the column space with its error, rows that read it well, and what is left unexplained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import qr

from unsoftmax.probes.base import Array

_DRAWS = 6


@dataclass(frozen=True, eq=False)
class ColumnSpace:
    """Measured columns U (d, k) = W X2', and the deviation of a single entry of U."""

    U: Array
    deviation: float

    @property
    def rank(self) -> int:
        return self.U.shape[1]

    @cached_property
    def basis(self) -> Array:
        """Orthonormal Q (d, k)."""
        return np.linalg.qr(self.U)[0]

    def coefficients(self, m: Array) -> float:
        """|c| for the column Q m = U c: how strongly errors of the measured columns enter it."""
        return float(np.linalg.norm(np.linalg.lstsq(self.basis.T @ self.U, m, rcond=None)[0])) if self.rank else 0.0


def column(X1: Array, x2: Array, t: Array, radius: Array) -> tuple[Array, float]:
    """W x2 (d,) from t = (X1 - 1 x2') W x2, and the deviation of its entries if those of t are `radius`."""
    inverse = np.linalg.inv(X1 - x2)
    return inverse @ t, float(np.linalg.norm(inverse * radius)) / math.sqrt(len(x2))


def reading_rows(Q: Array, n: Array, X2: Array, cosine: float, length: float, rng: np.random.Generator) -> Array:
    """k + 1 tokens x1 (k + 1, d), |x1| = length, x1.n = length cosine, whose differences to the x2 read span(Q) well.

    The first k alone determine a column in span(Q); the last one checks it. Chosen by pivoting among random tokens,
    and among draws by the worst column of X2.
    """
    d, k = Q.shape
    inside = Q - np.outer(n, n @ Q)
    left, size, _ = np.linalg.svd(inside, full_matrices=False)
    E = left[:, size > 1e-6]
    sine = math.sqrt(1 - cosine**2)
    best, chosen = -1.0, np.zeros((k + 1, d))
    for _ in range(_DRAWS):
        # A little of every direction keeps tokens apart where span(Q) is too small to do so.
        w = rng.standard_normal((8 * k + 8, E.shape[1])) @ E.T
        w = w + (0.1 if E.shape[1] else 1.0) * rng.standard_normal((len(w), d)) / math.sqrt(d)
        w = w - np.outer(w @ n, n)
        tokens = length * (cosine * n + sine * w / np.linalg.norm(w, axis=1, keepdims=True))
        M = tokens @ Q - X2.mean(axis=0) @ Q
        order = qr(M.T, pivoting=True, mode="r")[1] if k else np.arange(len(tokens))
        pick = np.vstack([tokens[order[:k]], _check(tokens[order[:k]], tokens[order[k:]], Q, X2)])
        worst = min((smallest(pick[:k] @ Q - x2 @ Q) for x2 in X2), default=math.inf) if k else math.inf
        if worst > best:
            best, chosen = worst, pick
    return chosen


def _check(rows: Array, others: Array, Q: Array, X2: Array) -> Array:
    """Of `others`, the token (1, d) that with `rows` sees most of what lies outside span(Q), for its noise."""
    x2 = X2.mean(axis=0)
    A, B = rows - x2, others - x2
    weights = np.linalg.lstsq((A @ Q).T, (B @ Q).T, rcond=None)[0] if len(rows) else np.zeros((0, len(B)))
    outside = np.linalg.norm(B - weights.T @ A, axis=1) / np.sqrt(1 + (weights**2).sum(axis=0))
    return others[[np.argmax(outside)]]


def smallest(M: Array) -> float:
    """Smallest singular value."""
    return float(np.linalg.svd(M, compute_uv=False)[-1])


def unexplained(space: ColumnSpace, X1: Array, x2: Array, t: Array, radius: Array) -> float:
    """What k + 1 logits t of one column leave unexplained by span(Q), over its deviation under noise."""
    Q = space.basis
    M = (X1 - x2) @ Q
    null = np.linalg.svd(M)[0][:, -1]
    m = np.linalg.lstsq(M, t, rcond=None)[0]
    seen = (X1 - x2).T @ null
    off = float(np.linalg.norm(seen - Q @ (Q.T @ seen))) * space.deviation * space.coefficients(m)
    return abs(float(null @ t)) / math.hypot(float(np.linalg.norm(null * radius)), off)


def row_column(space: ColumnSpace, X1: Array, x2: Array, t: Array, radius: Array) -> tuple[Array, float]:
    """m (k,), W x2 = Q m, from k logits, and the expected length of the error of Q m."""
    Q = space.basis
    inverse = np.linalg.inv((X1 - x2) @ Q)
    m = inverse @ t
    outside = (X1 - x2) - ((X1 - x2) @ Q) @ Q.T
    spread = math.hypot(math.sqrt(len(x2) - space.rank), float(np.linalg.norm(inverse @ outside)))
    own = float(np.linalg.norm(inverse * radius))
    return m, math.hypot(own, spread * space.deviation * space.coefficients(m))
