"""A known ReLU network along segments: phi(alpha) = g(base + alpha a) is piecewise linear and, where it is monotone,
inverted exactly.

Theory: docs/theory/transformer.md, "Bounded tokens".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array

_TILTS = np.array([1.2, 0.9, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05])
_CANDIDATES = 256
"""Random directions tried for a segment on which the network is steep throughout."""

_EMPTY = 1e-12
"""Pieces shorter than this are rounding between two kinks that coincide."""


@dataclass(frozen=True, eq=False)
class Kinked:
    """g(x) = w . ReLU(A'x + b) + lin . x + b_o: A (d, m), w (m,), b (m,), lin (d,)."""

    A: Array
    w: Array
    b: Array
    lin: Array
    b_o: float

    def of(self, x: Array) -> Array:
        """(n, d) -> (n,)."""
        return np.asarray(np.maximum(x @ self.A + self.b, 0) @ self.w + x @ self.lin + self.b_o)

    def gradients(self, x: Array) -> Array:
        """(n, d) -> (n, d)."""
        return np.asarray(((x @ self.A + self.b > 0) * self.w) @ self.A.T + self.lin)


def segments(g: Kinked, base: Array, a: Array) -> tuple[Array, Array]:
    """Breakpoints (n, m + 2) and slopes (n, m + 1) of phi over [0, 1] for each row of a (n, d)."""
    start, rate = base @ g.A + g.b, a @ g.A
    with np.errstate(divide="ignore", invalid="ignore"):
        at = -start / rate
    inside = (at > 0) & (at < 1)
    first = a @ g.lin + np.where((start > 0) | ((start == 0) & (rate > 0)), rate, 0) @ g.w
    jumps, at = np.where(inside, np.abs(rate) * g.w, 0.0), np.where(inside, at, 1.0)
    order = np.argsort(at, axis=1, kind="stable")
    at, jumps = np.take_along_axis(at, order, 1), np.take_along_axis(jumps, order, 1)
    slopes = first[:, None] + np.hstack([np.zeros((len(a), 1)), np.cumsum(jumps, axis=1)])
    return np.hstack([np.zeros((len(a), 1)), at, np.ones((len(a), 1))]), slopes


def monotony(g: Kinked, base: Array, a: Array) -> Array:
    """Smallest slope of phi in the direction it goes over all (n,); positive where phi is monotone."""
    points, slopes = segments(g, base, a)
    lengths = np.diff(points, axis=1)
    direction = np.sign((lengths * slopes).sum(axis=1))
    return np.asarray(np.where(lengths > _EMPTY, slopes * direction[:, None], np.inf).min(axis=1))


def monotone_rows(g: Kinked, base: Array, length: float, rng: np.random.Generator) -> Array | None:
    """Independent a's (d, d) of the given length with phi monotone along each; None if none were found."""
    d = len(base)
    x = rng.standard_normal((_CANDIDATES, d))
    steep = g.gradients(base + length * rng.random((_CANDIDATES, 1)) * x / np.linalg.norm(x, axis=1, keepdims=True))
    x = np.vstack([x, steep, -steep])
    x = x[np.linalg.norm(x, axis=1) > 0]
    x = x * (length / np.linalg.norm(x, axis=1, keepdims=True))
    quality = monotony(g, base, x)
    if quality.max() <= 0:
        return None
    n = x[np.argmax(quality)] / length
    frame = np.linalg.qr(np.column_stack([n, rng.standard_normal((d, d - 1))]))[0].T
    turns = np.concatenate([_TILTS, -_TILTS])
    rows = np.cos(turns)[:, None] * n + np.sin(turns)[:, None] * frame[1:, None, :]
    quality = monotony(g, base, rows.reshape(-1, d) * length).reshape(d - 1, -1)
    # A larger turn conditions the rows better; a steeper phi reads alpha better.
    best = np.argmax(quality * np.abs(np.sin(turns)), axis=1)
    if (quality[np.arange(d - 1), best] <= 0).any():
        return None
    return np.vstack([n, rows[np.arange(d - 1), best]]) * length


def invert(g: Kinked, base: Array, a: Array, y: Array) -> tuple[Array, Array]:
    """alpha (n,) with phi(alpha) = y, and phi' there; evaluated from the left end of the piece, so nothing cancels."""
    points, slopes = segments(g, base, a)
    lengths = np.diff(points, axis=1)
    values = np.hstack([np.zeros((len(a), 1)), np.cumsum(lengths * slopes, axis=1)])
    direction = np.sign(values[:, -1:])
    target = (y - g.of(base[None]))[:, None] * direction
    # The last piece that starts below the target and has a length.
    below = (values[:, :-1] * direction <= target) & (lengths > _EMPTY)
    piece = np.where(below.any(axis=1), below.shape[1] - 1 - below[:, ::-1].argmax(axis=1), 0)
    rows = np.arange(len(a))
    left, slope = points[rows, piece], slopes[rows, piece]
    return left + (y - g.of(base + left[:, None] * a)) / slope, slope
