"""Token pairs [x1 ; x2] that make the most of a norm limit R: design the two tokens, not their difference.

The answer is x2.v + alpha (x1 - x2).v, alpha = sigma(t), t = (x1 - x2)'W x2: an error e of it is an error
e / ((x1 - x2).v alpha (1 - alpha)) of t. With n = v/|v| and w_1..w_d the corners of a regular simplex around the origin
of n's complement,

    x1_l = |x1| (cos n + sin w_l),   x2_j = |x2| (-cos' n + sin' w_j)

keep every (x1 - x2).v at |v| (|x1| cos + |x2| cos'), need no margin on the entries of v, and are as good as orthogonal:
off n the singular values of X1 are |x1| sin, along n they are larger. The angles maximise
sin sin' (|x1| cos + |x2| cos'), the inverse of the error of W; both cosines are 1/sqrt 3 if |x1| = |x2|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array, LazyProbes, Probes
from unsoftmax.probes.bases import householder_basis

_TILT = 0.12
"""Radians by which angles of repeated designs vary, so that no two share a token: the error of W is stationary at the
best angle, so a tenth costs about a hundredth."""

_SHORTEN = 0.03
"""Share by which tokens of repeated designs are shortened, for the same reason; the error grows in proportion to it."""

_WIDE_TILT = 0.3
"""Radians by which angles vary where answers are rounded to few digits: tokens must differ by more than a step of the
answers to be rounded independently."""

_SHORTEN_ON_LINE = 0.1
"""Share by which tokens are shortened on a line, d = 1, where there are no angles and only lengths can vary."""

_WIDE_SHORTEN = 0.5
"""The same on a line where answers are rounded to few digits."""

_SHRINK = {"float64": 1 - 2.0**-22, "float32": 1 - 2.0**-22, "float16": 1 - 2.0**-9}


def best_cosines(ratio: float, d: int) -> tuple[float, float]:
    """cos, cos' that maximise sin sin' (cos + ratio cos') for |x2| / |x1| = ratio in (0, 1].

    cos' never falls below 1/sqrt d, where the x2_j are exactly orthogonal.
    """
    c1 = c2 = 1 / math.sqrt(3)
    for _ in range(60):
        # Stationarity in each angle, c (c + r c') = 1 - c^2 and c' (c + r c') = r (1 - c'^2), solved in turn.
        b = ratio * c2
        c1 = (-b + math.sqrt(b * b + 8)) / 4
        c2 = (-c1 + math.sqrt(c1 * c1 + 8 * ratio * ratio)) / (4 * ratio)
    return c1, max(c2, 1 / math.sqrt(d))


def simplex(v: Array) -> tuple[Array, Array]:
    """n = v/|v| (d,) and the corners w_l (d, d) of a regular simplex orthogonal to n; the w_l are 0 if d = 1."""
    d = len(v)
    n = v / np.linalg.norm(v)
    if d == 1:
        return n, np.zeros((1, 1))
    Z = householder_basis(v)
    Z = Z * np.sign(Z @ n)[:, None]
    return n, (Z - n / math.sqrt(d)) / math.sqrt(1 - 1 / d)


def turned(w: Array, n: Array, rng: np.random.Generator) -> Array:
    """w (m, d), orthogonal to n, under a random rotation of n's complement."""
    d = len(n)
    if d == 1:
        return w
    frame = np.linalg.qr(np.column_stack([n, rng.standard_normal((d, d - 1))]))[0][:, 1:]
    other = np.linalg.qr(np.column_stack([n, rng.standard_normal((d, d - 1))]))[0][:, 1:]
    return np.asarray(w @ frame @ other.T)


def representable(x: Array, dtype: str) -> Array:
    """Round tokens to what `dtype` holds (float32 also for float64: it survives a hidden cast), never longer than x."""
    name = "float32" if dtype == "float64" else dtype
    return (x * _SHRINK[dtype]).astype(name).astype(np.float64)


@dataclass(frozen=True, eq=False)
class TokenPairs:
    """Every x1 with every x2: X1 (m, d), X2 (n, d) -> m n probes [x1 ; x2], all x1 for the first x2 first."""

    X1: Array
    X2: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n): shape of the measurements."""
        return len(self.X1), len(self.X2)

    def columns(self, start: int, stop: int, phase: str) -> LazyProbes:
        """Every x1 with the x2 from start to stop, lazy."""
        m = len(self.X1)
        columns, rows = np.divmod(np.arange(start * m, stop * m), m)
        return self.at(rows, columns, np.ones(len(rows)), np.ones((len(rows), 2), dtype=np.int64), phase)

    def at(self, rows: Array, columns: Array, shrink: Array, copies: Array, phase: str) -> LazyProbes:
        """Selected pairs, both tokens times `shrink` (k,), repeated `copies` (k, 2) times."""

        def build(start: int, stop: int) -> Probes:
            k = slice(start, stop)
            tokens = np.stack([self.X1[rows[k]], self.X2[columns[k]]], axis=1) * shrink[k, None, None]
            plain = (copies[k] == 1).all()
            return Probes(tokens, None if plain else copies[k])

        return LazyProbes(len(rows), 2 * self.X1.shape[1] * 8, build, phase, saturable=True)

    def matrix(self, answers: Array) -> Array:
        """Answers of all columns (m n,) as a matrix (m, n)."""
        return answers.reshape(len(self.X2), len(self.X1)).T


def token_pairs(
    v: Array,
    longer: float,
    shorter: float,
    dtype: str,
    *,
    reach: float = math.inf,
    rng: np.random.Generator | None = None,
) -> TokenPairs:
    """The design above with |x1| <= longer, |x2| <= shorter <= longer, exactly representable in dtype.

    `reach` limits the tokens' part along v (answers behind a link must not grow with the tokens). `rng` turns the
    simplex at random around n, so that several designs share no token.
    """
    d = len(v)
    n, w = simplex(v)
    if d == 1:
        x = n[None] * (1.0 if rng is None else rng.uniform(0.9, 1.0))
        X1, X2 = min(longer, reach) * x, -min(shorter, reach) * x
        return TokenPairs(representable(X1, dtype), representable(X2, dtype))
    if rng is not None:
        w = turned(w, n, rng)
    c1, c2 = best_cosines(shorter / longer, d)
    c1, c2 = min(c1, reach / longer), min(c2, reach / shorter)
    X1 = longer * (c1 * n + math.sqrt(1 - c1 * c1) * w)
    X2 = shorter * (-c2 * n + math.sqrt(1 - c2 * c2) * w)
    return TokenPairs(representable(X1, dtype), representable(X2, dtype))


def turned_pairs(
    v: Array,
    longer: float,
    shorter: float,
    dtype: str,
    count: int,
    rng: np.random.Generator,
    *,
    wide: bool = False,
) -> tuple[Array, Array]:
    """`count` designs X1, X2 (count, d, d) as above, each turned around n, of which no two share a token.

    Angles and lengths vary a little as well: in the plane nothing is left to turn. The error of W is stationary in the
    angles, so that this costs next to nothing. `wide`: so much that answers rounded to few digits differ as well.
    """
    d = len(v)
    n, w = simplex(v)
    c1, c2 = best_cosines(shorter / longer, d)
    corners = w @ np.linalg.qr(np.column_stack([n, rng.standard_normal((d, d - 1))]))[0][:, 1:]
    tilt = _WIDE_TILT if wide else _TILT
    shorten = _SHORTEN if d > 1 else _WIDE_SHORTEN if wide else _SHORTEN_ON_LINE
    X = []
    for length, cosine, side in ((longer, c1, 1.0), (shorter, c2, -1.0)):
        angle = math.acos(cosine) + rng.uniform(-tilt, tilt, (count, d, 1))
        size = length * rng.uniform(1 - shorten, 1.0, (count, d, 1))
        if d == 1:
            x = size * side * n
        else:
            frames = rng.standard_normal((count, d, d - 1))
            frames = np.linalg.qr(frames - n[:, None] * (n @ frames)[:, None, :])[0]
            x = size * (side * np.cos(angle) * n + np.sin(angle) * (corners @ frames.transpose(0, 2, 1)))
        X.append(representable(x, dtype))
    return X[0], X[1]


def signed_pairs(X1: Array, X2: Array, sign: Array, phase: str) -> LazyProbes:
    """Every x1 with every x2 of its block, both times the pair's sign: X1, X2, sign (K, d, d), in the order of sign."""
    d = X1.shape[-1]

    def build(start: int, stop: int) -> Probes:
        k, l, j = np.unravel_index(np.arange(start, stop), sign.shape)
        return Probes(np.stack([X1[k, l], X2[k, j]], axis=1) * sign[k, l, j][:, None, None])

    return LazyProbes(sign.size, 2 * d * 8, build, phase)
