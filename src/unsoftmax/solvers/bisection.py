"""Many numbers found at once from yes-or-no answers "is it above this level?": one bit per number and round.

A search is immutable: `levels` says what to ask, `told` returns the search after the answers. `Brackets` believes every
answer; `solvers.beliefs` does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from unsoftmax.probes.base import Array


class Search(Protocol):
    """n unknown numbers: the best guess `center` (n,), and `radius` (n,) around it (inf while unbounded)."""

    @property
    def center(self) -> Array: ...

    @property
    def radius(self) -> Array: ...

    def levels(self) -> Array:
        """Level (n,) with which each number should be compared next."""

    def told(self, index: Array, levels: Array, above: Array) -> Self:
        """The search after the numbers at `index` were compared with `levels`: `above` is True where larger."""

    def unmet(self, target: float, weights: Array | float = 1.0) -> Array:
        """Which numbers to ask next so that the root sum of squares of weights * radius comes down to `target`."""

    def take(self, index: Array) -> Self:
        """The search for the numbers at `index` alone."""

    def joined(self, other: Self) -> Self:
        """Both searches as one, the other's numbers last."""


@dataclass(frozen=True, eq=False)
class Brackets:
    """Plain bisection: each number lies in (lo, hi].

    An open bracket asks 0 first, then +-`first`, then doubles: unbounded, and a quarter of a bit above the entropy if
    the numbers are Gaussian with standard deviation `first` / 0.7.
    """

    lo: Array
    hi: Array
    first: float = 1.0

    @classmethod
    def open(cls, n: int, first: float) -> Brackets:
        """n numbers of which nothing is known."""
        return cls(np.full(n, -np.inf), np.full(n, np.inf), first)

    @classmethod
    def between(cls, n: int, lo: float, hi: float) -> Brackets:
        """n numbers in (lo, hi]."""
        return cls(np.full(n, float(lo)), np.full(n, float(hi)))

    @property
    def radius(self) -> Array:
        return np.asarray((self.hi - self.lo) / 2)

    @property
    def center(self) -> Array:
        closed = np.isfinite(self.lo) & np.isfinite(self.hi)
        return np.where(closed, np.where(closed, self.lo, 0) + np.where(closed, self.radius, 0), 0.0)

    def levels(self) -> Array:
        up, down = np.isinf(self.hi), np.isinf(self.lo)
        grown_up = np.maximum(2 * self.lo, self.first)
        grown_down = np.minimum(2 * self.hi, -self.first)
        return np.select([up & down, up, down], [np.zeros(len(up)), grown_up, grown_down], self.center)

    def told(self, index: Array, levels: Array, above: Array) -> Brackets:
        lo, hi = self.lo.copy(), self.hi.copy()
        lo[index[above]] = levels[above]
        hi[index[~above]] = levels[~above]
        return replace(self, lo=lo, hi=hi)

    def unmet(self, target: float, weights: Array | float = 1.0) -> Array:
        """The widest first, and no more of them than halving needs."""
        if np.isinf(self.radius).any():
            return np.flatnonzero(np.isinf(self.radius))
        squares = (weights * self.radius) ** 2
        order = np.argsort(-squares, kind="stable")
        after = squares.sum() - 0.75 * np.concatenate([[0.0], np.cumsum(squares[order])])
        enough = np.flatnonzero(after <= target**2)
        return order[: enough[0] if len(enough) else len(order)]

    def take(self, index: Array) -> Brackets:
        return replace(self, lo=self.lo[index], hi=self.hi[index])

    def joined(self, other: Brackets) -> Brackets:
        return replace(self, lo=np.concatenate([self.lo, other.lo]), hi=np.concatenate([self.hi, other.hi]))
