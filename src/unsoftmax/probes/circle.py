"""Half great circles: x(theta) = cos(theta) P + sin(theta) Q crosses every hyperplane through the origin once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Circle:
    """Orthonormal P, Q (d,) spanning the plane and E (d - 2, d) its complement; angles run over (start, stop).

    A closed half circle has stop = start + pi and continues at the antipode; an `open` one ends at its two ends (the
    last coordinate must stay positive there, and is 0 at angles 0 and pi).
    """

    P: Array
    Q: Array
    E: Array
    start: float
    stop: float
    open: bool = False

    def points(self, theta: Array) -> Array:
        """x(theta) (n, d)."""
        cosines, sines = _cosines(theta)
        return np.outer(cosines, self.P) + np.outer(sines, self.Q)

    def tangents(self, theta: Array) -> Array:
        """x'(theta) (n, d)."""
        cosines, sines = _cosines(theta)
        return np.outer(cosines, self.Q) - np.outer(sines, self.P)

    def room(self, theta: Array) -> Array:
        """How far a step off the plane may go at each angle before half the last coordinate is used up."""
        if not self.open:
            return np.full(len(theta), np.inf)
        return 0.5 * np.sin(theta) * self.Q[-1]


def closed_circle(dim: int, rng: np.random.Generator) -> Circle:
    """A uniformly random half great circle of R^dim, dim >= 2."""
    return Circle(*_frame(rng.standard_normal((dim, dim))), 0.0, np.pi)


def upper_circle(dim: int, rng: np.random.Generator, margin: float) -> Circle:
    """A half circle on which the last coordinate is positive: a straight line of R^(dim-1), homogenised.

    `margin` keeps the angle from 0 and pi, where the line is at infinity.
    """
    rows = rng.standard_normal((dim, dim))
    rows[0, -1] = 0.0
    rows[1, -1] = math.sqrt(_dot(rows[1, :-1], rows[1, :-1]) / dim)
    return Circle(*_frame(rows), margin, np.pi - margin, open=True)


def _frame(rows: Array) -> tuple[Array, Array, Array]:
    """Orthonormal P, Q and E from the rows (d, d), in this order.

    Kinks are looked for so close together that the last digit of a point decides where the next one is asked: the plane
    is made of sums that are rounded once, the same on every processor.
    """
    P = _unit(rows[0])
    Q = rows[1]
    for _ in range(2):
        Q = _unit(Q - _dot(Q, P) * P)
    return P, Q, np.linalg.qr(np.vstack([P, Q, rows[2:]]).T)[0].T[2:]


def _dot(a: Array, b: Array) -> float:
    return math.fsum((a * b).tolist())


def _unit(a: Array) -> Array:
    return np.asarray(a / math.sqrt(_dot(a, a)))


def _cosines(theta: Array) -> tuple[list[float], list[float]]:
    """cos and sin of angles (n,), one by one: NumPy's own choose their last digit by the processor."""
    angles = np.asarray(theta).tolist()
    return [math.cos(t) for t in angles], [math.sin(t) for t in angles]
