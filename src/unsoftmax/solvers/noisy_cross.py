"""Cross scheme under noise: the column space with its error, rows that read it well, and what is left unexplained.

Theory: docs/theory/approximate.md, "Low rank".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.cross import pivot_rows
from unsoftmax.solvers.singular import svd

_DRAWS = 6
"""Random sets of tokens of which the best conditioned is taken; they cost arithmetic and no queries."""

_OVERLOOKED = 1e-3
"""Share of directions a statement about what was not seen leaves out: those nearly orthogonal to every probe."""


@dataclass(frozen=True, eq=False)
class ColumnSpace:
    """Measured columns U (d, k) = W X2', the deviation of a single entry of U, and dU/dv (k, d, d).

    An error of v is one and the same behind all logits, so that it is carried along as a derivative; the errors of the
    logits' own answers are independent, and only their size is.
    """

    U: Array
    deviation: float
    by_value: Array

    @staticmethod
    def none(d: int) -> ColumnSpace:
        return ColumnSpace(np.zeros((d, 0)), 0.0, np.zeros((0, d, d)))

    def with_column(self, X1: Array, x2: Array, logits: Logits) -> ColumnSpace:
        """One more column W x2 from t = (X1 - 1 x2') W x2, d logits."""
        k, d = self.rank, len(x2)
        inverse = np.linalg.inv(X1 - x2)
        fresh = float(np.linalg.norm(inverse * logits.radius)) / math.sqrt(d)
        return ColumnSpace(
            np.column_stack([self.U, inverse @ logits.t]),
            math.sqrt((k * self.deviation**2 + fresh**2) / (k + 1)),
            np.concatenate([self.by_value, (inverse @ logits.by_value)[None]]),
        )

    @property
    def rank(self) -> int:
        return self.U.shape[1]

    @cached_property
    def basis(self) -> Array:
        """Orthonormal Q (d, k)."""
        return np.linalg.qr(self.U)[0]

    def coefficients(self, m: Array) -> Array:
        """c (k,) for the column Q m = U c: how strongly errors of the measured columns enter it."""
        return np.linalg.lstsq(self.basis.T @ self.U, m, rcond=None)[0] if self.rank else np.zeros(0)


@dataclass(frozen=True, eq=False)
class Logits:
    """Logits t (m,) of one x2, the radius (m,) of what their own answers leave, and dt/dv (m, d)."""

    t: Array
    radius: Array
    by_value: Array


def reading_rows(Q: Array, n: Array, X2: Array, cosine: float, length: float, rng: np.random.Generator) -> Array:
    """k + 1 tokens x1 (k + 1, d), |x1| = length, x1.n = length cosine, whose differences to the x2 read span(Q) well.

    The first k alone determine a column in span(Q); the last one checks it. Chosen by pivoting among random tokens,
    and among draws by the worst column of X2.
    """
    d, k = Q.shape
    inside = Q - np.outer(n, n @ Q)
    left, size, _ = svd(inside, full_matrices=False)
    E = left[:, size > 1e-6]
    sine = math.sqrt(1 - cosine**2)
    best, chosen = -1.0, np.zeros((k + 1, d))
    for _ in range(_DRAWS):
        # A little of every direction keeps tokens apart where span(Q) is too small to do so.
        w = rng.standard_normal((8 * k + 8, E.shape[1])) @ E.T
        w = w + (0.1 if E.shape[1] else 1.0) * rng.standard_normal((len(w), d)) / math.sqrt(d)
        w = w - np.outer(w @ n, n)
        # In one dimension nothing is orthogonal to n.
        w = w / (np.linalg.norm(w, axis=1, keepdims=True) if d > 1 else 1.0)
        tokens = length * (cosine * n + sine * w)
        M = tokens @ Q - X2.mean(axis=0) @ Q
        order = pivot_rows(M) if k else np.arange(len(tokens))
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


@dataclass(frozen=True, eq=False)
class Left:
    """What k + 1 logits of one column leave unexplained by the span: probe.(W x2) for a probe (d,) orthogonal to it."""

    size: float
    deviation: float
    probe: Array
    x2: Array


def unexplained(space: ColumnSpace, X1: Array, x2: Array, logits: Logits, value_radius: float) -> Left:
    """See `Left`; the deviation counts the logits' own noise, that of the columns, and that of v."""
    Q, d = space.basis, len(x2)
    M = (X1 - x2) @ Q
    null = svd(M)[0][:, -1]
    c = space.coefficients(np.linalg.lstsq(M, logits.t, rcond=None)[0])
    seen = (X1 - x2).T @ null
    probe = seen - Q @ (Q.T @ seen)
    own = float(np.linalg.norm(null * logits.radius))
    columns = float(np.linalg.norm(probe)) * space.deviation * float(np.linalg.norm(c))
    by_value = null @ logits.by_value - seen @ np.tensordot(c, space.by_value, 1)
    value = float(np.linalg.norm(by_value)) * value_radius / math.sqrt(d)
    return Left(abs(float(null @ logits.t)), math.hypot(own, columns, value), probe, x2)


def overlooked(space: ColumnSpace, measured: Array, left: list[Left], rng: np.random.Generator) -> float:
    """Size of a direction a b' of W outside the span that all the probes together could have missed.

    For a and b at random, a outside the span and b orthogonal to the tokens x2 `measured` (k, d): the largest size in
    agreement with every probe, exceeded by few directions only.
    """
    d = len(space.U)
    sides = []
    for known in (space.basis, np.linalg.qr(measured.T)[0]):
        # So many that four of them lie beyond the quantile.
        g = rng.standard_normal((round(4 / _OVERLOOKED), d))
        g = g - (g @ known) @ known.T
        sides.append(g / np.linalg.norm(g, axis=1, keepdims=True))
    A, B = sides
    shown = np.abs((A @ np.array([part.probe for part in left]).T) * (B @ np.array([part.x2 for part in left]).T))
    limits = np.array([part.size + 2 * part.deviation for part in left])
    return float(np.quantile((limits / shown).min(axis=1), 1 - _OVERLOOKED))


@dataclass(frozen=True, eq=False)
class Read:
    """A column W x2 = Q m with m (k,), the expected length of its error, and its derivative (d, d) by v."""

    m: Array
    error: float
    by_value: Array


def row_column(space: ColumnSpace, X1: Array, x2: Array, logits: Logits) -> Read:
    """A column inside the span from k logits."""
    Q = space.basis
    inverse = np.linalg.inv((X1 - x2) @ Q)
    m = inverse @ logits.t
    c = space.coefficients(m)
    outside = (X1 - x2) - ((X1 - x2) @ Q) @ Q.T
    spread = math.hypot(math.sqrt(len(x2) - space.rank), float(np.linalg.norm(inverse @ outside)))
    own = float(np.linalg.norm(inverse * logits.radius))
    inherited = np.tensordot(c, space.by_value, 1)
    by_value = inherited + Q @ (inverse @ (logits.by_value - (X1 - x2) @ inherited))
    return Read(m, math.hypot(own, spread * space.deviation * float(np.linalg.norm(c))), by_value)


def norm_by_value(parts: Iterable[Array]) -> float:
    """Operator norm of the derivatives (d, d) of all columns together, stacked."""
    gram = sum((part.T @ part for part in parts), np.zeros((1, 1)))
    return math.sqrt(max(float(np.linalg.eigvalsh(gram)[-1]), 0.0))
