"""Sinusoids alpha cos(theta) + beta sin(theta) given by points on them: what a homogeneous piecewise linear function is
between two kinks of a great circle. Everything is evaluated from the points nearest in angle, never from global
coefficients, which would cancel.

Theory: docs/theory/relu-network.md, "Method", kinks.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field

_SPREAD = 2.0
"""Angular distance up to which the two outermost points are the best pair to interpolate from."""


@dataclass
class Piece:
    """One sinusoid: points (angle, value) sorted by angle, at least two."""

    points: list[tuple[float, float]]
    _pair: tuple[tuple[float, float], tuple[float, float]] = field(init=False)

    def __post_init__(self) -> None:
        self.points.sort()
        self._choose()

    def _choose(self) -> None:
        first, last = self.points[0], self.points[-1]
        if last[0] - first[0] > _SPREAD:
            first, last = max(
                ((a, b) for i, a in enumerate(self.points) for b in self.points[i + 1 :]),
                key=lambda pair: math.sin(pair[1][0] - pair[0][0]),
            )
        self._pair = first, last

    def add(self, angle: float, value: float) -> None:
        insort(self.points, (angle, value))
        self._choose()

    @property
    def left(self) -> tuple[float, float]:
        return self.points[0]

    @property
    def right(self) -> tuple[float, float]:
        return self.points[-1]

    @property
    def span(self) -> float:
        return self.points[-1][0] - self.points[0][0]

    def value(self, angle: float) -> float:
        (t1, f1), (t2, f2) = self._pair
        return (f1 * math.sin(t2 - angle) + f2 * math.sin(angle - t1)) / math.sin(t2 - t1)

    def slope(self, angle: float) -> float:
        (t1, f1), (t2, f2) = self._pair
        return (f2 * math.cos(angle - t1) - f1 * math.cos(t2 - angle)) / math.sin(t2 - t1)

    def error(self, angle: float, sigma: float) -> float:
        """Size of |answer - value| at an angle if every answer carries noise sigma."""
        (t1, _), (t2, _) = self._pair
        amplified = (abs(math.sin(t2 - angle)) + abs(math.sin(angle - t1))) / abs(math.sin(t2 - t1))
        return sigma * (1 + amplified)

    def fits(self, angle: float, value: float, tolerance: float) -> bool:
        return abs(value - self.value(angle)) < self.error(angle, tolerance)

    def consistent(self, tolerance: float) -> bool:
        """Whether all points lie on the sinusoid through the chosen pair."""
        return all(self.fits(angle, value, tolerance) for angle, value in self.points)


def agree(left: Piece, right: Piece, tolerance: float) -> bool:
    """Whether two neighbouring pieces are the same sinusoid as far as noise lets one see."""
    if not (left.fits(*right.left, tolerance) and right.fits(*left.right, tolerance)):
        return False
    return merged(left, right).consistent(tolerance)


def merged(left: Piece, right: Piece) -> Piece:
    """One piece of the points of two that agree."""
    return Piece(left.points + right.points)


@dataclass(frozen=True)
class Crossing:
    """Where two sinusoids meet between their pieces, and the size of the change of slope there."""

    angle: float
    jump: float


def crossing(left: Piece, right: Piece) -> Crossing | None:
    """The meeting point strictly between the pieces, or None; computed relative to the left piece's end."""
    (t1, f1), (t2, f2) = left.right, right.left
    w = t2 - t1
    d1, d2 = right.value(t1) - f1, f2 - left.value(t2)
    if w <= 0 or d1 * d2 >= 0:
        return None
    s = math.atan2(-d1 * math.sin(w), d2 - d1 * math.cos(w)) % math.pi
    if not 0 < s < w:
        return None
    return Crossing(t1 + s, abs(d2 * math.cos(s) - d1 * math.cos(w - s)) / math.sin(w))


def meeting(left: Piece, right: Piece) -> float:
    """Angle of a kink from its two final pieces."""
    found = crossing(left, right)
    return found.angle if found is not None else 0.5 * (left.right[0] + right.left[0])
