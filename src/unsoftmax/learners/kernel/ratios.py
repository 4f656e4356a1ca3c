"""Weights that are powers of the score, and what one answer shows of them: scores up to a scale.

Long tokens x and a short query token q: the query token's own score does not count beside theirs. In plain sums two
answers about one token show the ratio of its scores; with normalised weights one answer shows the ratio of two tokens'
scores.

Theory: docs/theory/kernels.md, "Powers of the score".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.angles import widest_tree
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Power:
    """kappa(s) = s^p for s > 0 and side |s|^p for s < 0: side 0 is ReLU, -1 odd (linear), +1 even (quadratic)."""

    degree: int
    side: int

    def root(self, value: Array) -> Array:
        """t with sign(t) |t|^p = value."""
        return np.asarray(np.sign(value) * np.abs(value) ** (1.0 / self.degree))

    def odd(self, t: Array) -> Array:
        """sign(t) |t|^p, or |t|^p for an even kernel."""
        size = np.abs(t) ** self.degree
        return np.asarray(size if self.side > 0 else np.sign(t) * size)


def spread(directions: Array, sender: Sender) -> tuple[list[tuple[int, int]], float]:
    """The pairs of directions (n, d) whose sizes are compared, and the smallest sine of an angle; none is parallel."""
    edges, sine = widest_tree(directions)
    if sine < max(HALF_DIGITS, math.sqrt(sender.unit)):
        raise NotIdentifiable(
            "W has rank one, or rows or columns that are parallel to half of the digits: their sizes do not show where "
            "the kernel is a power of the score."
        )
    return edges, sine


def signed(size: Array, square: Array, both: Array) -> Array:
    """+-size (n,) from its square and the square `both` of 1 +- size: the cross term has the sign."""
    return np.asarray(np.where(both - square - 1 < 0, -1.0, 1.0) * np.abs(size))


@dataclass(frozen=True, eq=False)
class Sender:
    """How tokens are sent, as `long` x and `short` q; answers may be off by `unit` of their terms and by `noise`."""

    spec: OracleSpec
    long: float
    short: float
    unit: float
    noise: float

    def tokens(self, rows: list[Array], q: Array) -> Array:
        """[long rows[0] ; ... ; short q] (n, len(rows) + 1, d) from arrays (n, d), as the number format holds them."""
        X = np.stack([*(self.long * row for row in rows), self.short * q], axis=1)
        return np.asarray(X.astype(self.spec.dtype).astype(np.float64))

    def summed(self, power: Power, x: Array, q: Array, phase: str) -> Asking[tuple[Array, Array]]:
        """Plain sums: odd(x'Wq) (x.v) (n,), and the relative error of each.

        Kernels that are not even are asked at x and -x together, so that no score is on the dead side of a ReLU.
        """
        rows = [x] if power.side > 0 else [x, -x]
        y = yield Probes(self.tokens(rows, q), phase=phase)
        scale = self.long * (self.long * self.short) ** power.degree * (2 if power.side < 0 else 1)
        g = np.asarray(y / scale)
        with np.errstate(divide="ignore", invalid="ignore"):
            return g, np.minimum(self.unit + self.noise / np.abs(y), 1.0)

    def against(self, x: Array, r: Array, q: Array, v: Array, phase: str) -> Asking[tuple[Array, Array]]:
        """Normalised: kappa(x'Wq) / kappa(r'Wq) (n,), and the relative error of each."""
        X = self.tokens([x, r], q)
        y = yield Probes(X, phase=phase)
        value, other = X[:, 0] @ v, X[:, 1] @ v
        return self._ratio(y - other, value - y, np.abs(value) + np.abs(other))

    def mirrored(self, x: Array, r: Array, q: Array, v: Array, phase: str) -> Asking[tuple[Array, Array]]:
        """Normalised ReLU: sign(t) kappa(|t|) / kappa(|t_r|) (n,) at t = x'Wq, t_r = r'Wq where r.v = 0; errors."""
        X = self.tokens([x, -x, r, -r], q)
        y = yield Probes(X, phase=phase)
        value = X[:, 0] @ v
        return self._ratio(y * np.sign(value), np.abs(value) - np.abs(y), np.abs(value))

    def _ratio(self, up: Array, down: Array, size: Array) -> tuple[Array, Array]:
        noise = self.unit * size + self.noise
        with np.errstate(divide="ignore", invalid="ignore"):
            u = up / down
            return u, np.minimum(noise * (1 / np.abs(up) + 1 / np.abs(down)), 1.0)
