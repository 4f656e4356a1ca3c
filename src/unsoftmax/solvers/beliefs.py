"""Noisy bisection: each answer is wrong with probability `flip`, independently; Bayes keeps the score.

Every number has a posterior density, constant between the levels it was compared with; it is always asked at its
median, which gains 1 - H(flip) bits per answer, the capacity of the channel. (Horstein's posterior matching.)

Theory: docs/theory/membership.md, "Flipped labels".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Posteriors of n numbers, uniform before the first answer in a coordinate u in [0, 1].

    `edges` (n, K+1) and `masses` (n, K): cells of u and their probabilities. With `scale` the number is
    scale * tan(pi (u - 1/2)), a Cauchy prior without bounds; without it the number is u itself.
    `miss`: probability that a number lies outside center +- radius, given its answers.
    """

    edges: Array
    masses: Array
    flip: float
    miss: float
    scale: float | None = None

    @classmethod
    def fresh(cls, n: int, flip: float, miss: float, scale: float | None = None) -> Beliefs:
        """n numbers of which only the prior is known."""
        return cls(np.tile([0.0, 1.0], (n, 1)), np.ones((n, 1)), flip, miss, scale)

    @property
    def center(self) -> Array:
        lo, hi = self._interval()
        return np.where(np.isfinite(lo) & np.isfinite(hi), lo + (hi - lo) / 2, 0.0)

    @property
    def radius(self) -> Array:
        lo, hi = self._interval()
        return np.asarray((hi - lo) / 2)

    def levels(self, cuts: int = 1) -> Array:
        return np.stack([self._number(self._quantile(k / (cuts + 1))) for k in range(1, cuts + 1)], axis=1)

    def told(self, index: Array, levels: Array, above: Array) -> Beliefs:
        first = np.unique(index, return_index=True)[1]
        if len(first) < len(index):
            # A number compared with several levels in one round: one after the other.
            rest = np.setdiff1d(np.arange(len(index)), first)
            return self.told(index[first], levels[first], above[first]).told(index[rest], levels[rest], above[rest])
        n, cells = self.masses.shape
        # A number that was not asked is cut at its right end: a cell without mass keeps the arrays rectangular.
        at = np.ones(n)
        at[index] = self._coordinate(levels)
        cell = np.minimum((self.edges[:, 1:] <= at[:, None]).sum(axis=1), cells - 1)
        rows = np.arange(n)
        left, right = self.edges[rows, cell], self.edges[rows, cell + 1]
        share = np.divide(at - left, right - left, out=np.ones(n), where=right > left)
        source = np.arange(cells + 1) - (np.arange(cells + 1) > cell[:, None])
        masses = np.take_along_axis(self.masses, source, axis=1)
        masses[rows, cell] *= share
        masses[rows, cell + 1] *= 1 - share
        edges = np.take_along_axis(self.edges, np.arange(cells + 2) - (np.arange(cells + 2) > cell[:, None]), axis=1)
        edges[rows, cell + 1] = at
        below = np.arange(cells + 1) <= cell[:, None]
        likely = np.ones((n, 1))
        likely[index, 0] = np.where(above, self.flip, 1 - self.flip)
        other = np.ones((n, 1))
        other[index, 0] = np.where(above, 1 - self.flip, self.flip)
        masses *= np.where(below, likely, other)
        return replace(self, edges=edges, masses=masses / masses.sum(axis=1, keepdims=True))

    def unmet(self, target: float, weights: Array | float = 1.0) -> Array:
        """All whose own share of the target is not reached: one answer does not halve a posterior."""
        each = np.asarray(weights) * np.ones(len(self.masses))
        share = target / math.sqrt(max(1, int(np.count_nonzero(each))))
        return np.flatnonzero((each > 0) & (self.radius > share / np.where(each > 0, each, 1.0)))

    def loosened(self, by: Array) -> Beliefs:
        """Afresh: a posterior does not say which of its levels mattered."""
        return Beliefs.fresh(len(self.masses), self.flip, self.miss, self.scale)

    def take(self, index: Array) -> Beliefs:
        return replace(self, edges=self.edges[index], masses=self.masses[index])

    def joined(self, other: Beliefs) -> Beliefs:
        wide = max(self.masses.shape[1], other.masses.shape[1])
        padded = [
            (
                np.pad(one.edges, ((0, 0), (0, wide - one.masses.shape[1])), constant_values=1.0),
                np.pad(one.masses, ((0, 0), (0, wide - one.masses.shape[1]))),
            )
            for one in (self, other)
        ]
        return replace(
            self,
            edges=np.concatenate([edges for edges, _ in padded]),
            masses=np.concatenate([masses for _, masses in padded]),
        )

    def _interval(self) -> tuple[Array, Array]:
        return self._number(self._quantile(self.miss / 2)), self._number(self._quantile(1 - self.miss / 2))

    def _quantile(self, q: float) -> Array:
        rows = np.arange(len(self.masses))
        upto = np.cumsum(self.masses, axis=1)
        cell = np.minimum((upto < q).sum(axis=1), self.masses.shape[1] - 1)
        mass = self.masses[rows, cell]
        share = np.divide(q - (upto[rows, cell] - mass), mass, out=np.zeros(len(rows)), where=mass > 0)
        left, right = self.edges[rows, cell], self.edges[rows, cell + 1]
        return np.asarray(left + np.clip(share, 0, 1) * (right - left))

    def _number(self, u: Array) -> Array:
        if self.scale is None:
            return u
        # Exact ends: an unbounded number must show an infinite radius, not the tangent of a rounded pi / 2.
        inside = (u > 0) & (u < 1)
        x = self.scale * np.tan(np.pi * (np.where(inside, u, 0.5) - 0.5))
        return np.where(inside, x, np.where(u > 0.5, np.inf, -np.inf))

    def _coordinate(self, x: Array) -> Array:
        return x if self.scale is None else np.asarray(np.arctan(x / self.scale) / np.pi + 0.5)
