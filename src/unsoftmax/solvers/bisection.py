"""Many numbers found at once from yes-or-no answers "is it above this level?": one bit per number and round.

A search is immutable: `levels` says what to ask, `told` returns the search after the answers. `Brackets` believes every
answer; `solvers.beliefs` does not.

Theory: docs/theory/membership.md, "One bit per bit".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from unsoftmax.probes.base import Array

_STALE = 2
"""Last answers alike after which the end that stood is doubted: a wrong one before them matters."""

_LONG = 6
"""Answers alike after which it is doubted though another came later, which a second wrong one may have been. What a
shorter run hides is 2^7 of the last bits at most; a run of 6 stands in one of six right numbers, one of 2 in all."""


class Search(Protocol):
    """n unknown numbers: the best guess `center` (n,), and `radius` (n,) around it (inf while unbounded)."""

    @property
    def center(self) -> Array: ...

    @property
    def radius(self) -> Array: ...

    def levels(self, cuts: int = 1) -> Array:
        """Levels (n, cuts), increasing, with which each number should be compared next.

        One cut gains one bit per answer; three gain two bits per round, for half as many rounds.
        """

    def told(self, index: Array, levels: Array, above: Array) -> Self:
        """The search after the numbers at `index` were compared with `levels`: `above` is True where larger."""

    def unmet(self, target: float, weights: Array | float = 1.0) -> Array:
        """Which numbers to ask next so that the root sum of squares of weights * radius comes down to `target`."""

    def loosened(self, by: Array) -> Self:
        """The search if every level it was told of may have been up to `by` (n,) away; it may start afresh."""

    def take(self, index: Array) -> Self:
        """The search for the numbers at `index` alone."""

    def joined(self, other: Self) -> Self:
        """Both searches as one, the other's numbers last."""


@dataclass(frozen=True, eq=False)
class Brackets:
    """Plain bisection: each number lies in (lo, hi].

    An open bracket asks 0 first, then +-`first`, then doubles: unbounded, and a quarter of a bit above the entropy if
    the numbers are Gaussian with standard deviation `first` / 0.7. `run` (n,) counts the last answers that were alike:
    positive if they moved `lo`, negative if `hi`. `stood` (n,) is the end that stood in the latest long run: 1 for
    `hi`, -1 for `lo`, 0 if there was none.
    """

    lo: Array
    hi: Array
    run: Array
    stood: Array
    first: float = 1.0

    @classmethod
    def open(cls, n: int, first: float) -> Brackets:
        """n numbers of which nothing is known."""
        run, stood = np.zeros((2, n), dtype=np.int64)
        return cls(np.full(n, -np.inf), np.full(n, np.inf), run, stood, first)

    @classmethod
    def between(cls, n: int, lo: Array | float, hi: Array | float) -> Brackets:
        """n numbers in (lo, hi], ends of their own (n,) or common ones."""
        run, stood = np.zeros((2, n), dtype=np.int64)
        return cls(np.full(n, lo, dtype=np.float64), np.full(n, hi, dtype=np.float64), run, stood)

    @property
    def radius(self) -> Array:
        return np.asarray((self.hi - self.lo) / 2)

    @property
    def center(self) -> Array:
        """The middle; the known end of a bracket that is open on one side."""
        low, high = np.isfinite(self.lo), np.isfinite(self.hi)
        lo, hi = np.where(low, self.lo, 0.0), np.where(high, self.hi, 0.0)
        return np.where(low & high, lo + (hi - lo) / 2, lo + hi)

    def levels(self, cuts: int = 1) -> Array:
        up, down = np.isinf(self.hi)[:, None], np.isinf(self.lo)[:, None]
        closed = ~(up | down)
        lo, hi = np.where(closed, self.lo[:, None], 0.0), np.where(closed, self.hi[:, None], 0.0)
        between = lo + (hi - lo) * (np.arange(1, cuts + 1) / (cuts + 1))
        growth = 2.0 ** np.arange(cuts)
        grown_up = np.maximum(2 * self.lo, self.first)[:, None] * growth
        grown_down = np.minimum(2 * self.hi, -self.first)[:, None] * growth[::-1]
        around = self.first * (np.arange(cuts) - (cuts - 1) / 2)
        return np.select([up & down, up, down], [np.broadcast_to(around, between.shape), grown_up, grown_down], between)

    def told(self, index: Array, levels: Array, above: Array) -> Brackets:
        lo, hi = self.lo.copy(), self.hi.copy()
        # `at`: a number may be compared with several levels in one round.
        np.maximum.at(lo, index[above], levels[above])
        np.minimum.at(hi, index[~above], levels[~above])
        up, down = lo > self.lo, hi < self.hi
        run = np.where(up & ~down, np.maximum(self.run, 0) + 1, self.run)
        run = np.where(down & ~up, np.minimum(self.run, 0) - 1, run)
        run = np.where(up & down, 0, run)
        stood = np.where(np.abs(run) >= _LONG, np.sign(run), self.stood)
        return replace(self, lo=lo, hi=hi, run=run, stood=stood)

    def stale(self) -> tuple[Array, Array]:
        """Numbers (m,) one of whose ends has stood for several answers, and that end (m,), 1 for `hi` and -1 for `lo`.

        An answer that is wrong moves one end past the number, and all later ones move the other: the wrong end stands.
        A second wrong answer moves it once more and ends the run: therefore the latest long run counts, not only the
        last.
        """
        end = np.where(np.abs(self.run) >= _STALE, np.sign(self.run), self.stood)
        index = np.flatnonzero(end)
        return index, end[index]

    def unmet(self, target: float, weights: Array | float = 1.0) -> Array:
        """The widest first, and no more of them than halving needs; none that is far below its share already."""
        with np.errstate(invalid="ignore"):
            squares = np.where(np.isinf(self.radius), np.inf, (weights * self.radius) ** 2)
        wide = np.flatnonzero(squares > target**2 / (4 * max(1, len(squares))))
        if np.isinf(squares).any():
            return wide
        order = np.argsort(-squares, kind="stable")[: np.count_nonzero(squares)]
        after = squares.sum() - 0.75 * np.concatenate([[0.0], np.cumsum(squares[order])])
        enough = np.flatnonzero(after <= target**2)
        return order[: enough[0]] if len(enough) else wide

    def loosened(self, by: Array) -> Brackets:
        return replace(self, lo=self.lo - by, hi=self.hi + by)

    def take(self, index: Array) -> Brackets:
        return replace(self, lo=self.lo[index], hi=self.hi[index], run=self.run[index], stood=self.stood[index])

    def joined(self, other: Brackets) -> Brackets:
        # Open brackets are the newer ones': they go on with the newer guess of the size.
        lo, hi = np.concatenate([self.lo, other.lo]), np.concatenate([self.hi, other.hi])
        run, stood = np.concatenate([self.run, other.run]), np.concatenate([self.stood, other.stood])
        return replace(other, lo=lo, hi=hi, run=run, stood=stood)
