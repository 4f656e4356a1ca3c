"""Half great circles: x(theta) = cos(theta) P + sin(theta) Q crosses every hyperplane through the origin once."""

from __future__ import annotations

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
        return np.outer(np.cos(theta), self.P) + np.outer(np.sin(theta), self.Q)

    def tangents(self, theta: Array) -> Array:
        """x'(theta) (n, d)."""
        return np.outer(np.cos(theta), self.Q) - np.outer(np.sin(theta), self.P)

    def room(self, theta: Array) -> Array:
        """How far a step off the plane may go at each angle before half the last coordinate is used up."""
        if not self.open:
            return np.full(len(theta), np.inf)
        return 0.5 * np.sin(theta) * self.Q[-1]


def closed_circle(dim: int, rng: np.random.Generator) -> Circle:
    """A uniformly random half great circle of R^dim, dim >= 2."""
    frame = np.linalg.qr(rng.standard_normal((dim, dim)))[0].T
    return Circle(frame[0], frame[1], frame[2:], 0.0, np.pi)


def upper_circle(dim: int, rng: np.random.Generator, margin: float) -> Circle:
    """A half circle on which the last coordinate is positive: a straight line of R^(dim-1), homogenised.

    `margin` keeps the angle from 0 and pi, where the line is at infinity.
    """
    frame = rng.standard_normal((dim, dim))
    frame[0, -1] = 0.0
    frame[1, -1] = np.linalg.norm(frame[1, :-1]) / np.sqrt(dim)
    frame = np.linalg.qr(frame.T)[0].T
    if frame[1, -1] < 0:
        frame[1] *= -1
    return Circle(frame[0], frame[1], frame[2:], margin, np.pi - margin, open=True)
