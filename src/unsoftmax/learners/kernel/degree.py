"""Which power of the score a kernel is: its degree, and what it makes of negative scores.

Weights that are powers of the score, and what one answer shows of them: scores up to a scale.

Long tokens x and a short query token q: the query token's own score does not count beside theirs. In plain sums two
answers about one token show the ratio of its scores; with normalised weights one answer shows the ratio of two tokens'
scores.

Which pairs of directions tell their sizes apart best: a tree of the widest angles.

Theory: docs/theory/kernels.md, "Powers of the score".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import few_digits
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.kernel.constants import KERNEL
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held
from unsoftmax.spec import OracleSpec

STEPS = np.array([-24, -12, -6, -3, 0])
"""Powers of 2 by which the query token is shortened: a kernel that is a power of its score is one over seven decades.
Longer ones would let the query token's own score count; three short steps show squares behind few decimals too."""

_SHARES = np.array([-3, -1, 0, 1, 3])
"""The same where only ratios of weights show, which saturate."""

TABLE = 2 * len(STEPS)
"""Queries of the table: the steps at a score and at its negative, or at two ratios and two sizes."""


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
        return held(X, self.spec.dtype)

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


def fold(power: Power, k: float) -> float:
    """Answer to [x ; -k x ; q] over x.v where weights are normalised, for a power that is odd or even."""
    weight = power.side * k**power.degree
    return (1 - k * weight) / (1 + weight)


def side_of(ratio: float, allowed: float) -> Power:
    """Odd, even or one-sided, from the ratio of the two folds; the degree of a ReLU is not in it and comes as 1."""
    one_sided = (1.0, KERNEL.folds[0] / KERNEL.folds[1])
    near = {Power(1, 0): min(abs(ratio / r - 1) for r in one_sided)}
    for degree in KERNEL.degrees:
        power = Power(degree, 1 if degree % 2 == 0 else -1)
        near[power] = abs(ratio / (fold(power, KERNEL.folds[0]) / fold(power, KERNEL.folds[1])) - 1)
    best = min(near, key=near.__getitem__)
    if not near[best] <= allowed:
        raise ModelMismatch(
            f"the kernel is 0 at 0 and no power of the score: [x ; -3 x ; q] over [x ; -x/2 ; q] is {ratio:.4g}, where "
            "ReLU and its powers answer 1 or 6, linear weights -2 and their squares -3.7."
        )
    return best


def summed_power(sender: Sender, x: Array, q: Array) -> Asking[tuple[Power, bool]]:
    """Plain sums: the power, and whether x'Wq is positive (which only a ReLU shows)."""
    scales = np.concatenate([2.0**STEPS, -(2.0**STEPS)])
    tokens = sender.tokens([np.repeat(x[None], TABLE, axis=0)], scales[:, None] * q)
    y = yield Probes(tokens, phase="table")
    up, down = y[: len(STEPS)], y[len(STEPS) :]
    positive = bool(np.abs(up).max() >= np.abs(down).max())
    shown, other = (up, down) if positive else (down, up)
    noise = max(sender.noise, few_digits(shown[shown != 0]) * float(np.abs(shown).max()))
    read = np.abs(shown) > CORE.loud * noise
    if read.sum() < 3:
        raise NotIdentifiable(f"answers of {float(np.abs(shown).max()):.2g} drown in a noise of {noise:.2g}.")
    shown, other, steps = shown[read], other[read], STEPS[read]
    allowed = KERNEL.off_catalogue * sender.unit + 2 * noise / float(np.abs(shown).min())
    degree = _slope(steps, shown, allowed)
    sides = other / shown
    side = int(np.rint(np.median(sides)))
    if side not in (-1, 0, 1) or not np.abs(sides - side).max() <= allowed:
        raise ModelMismatch(f"negative scores count {float(np.median(sides)):.4g} times positive ones, not 0, 1 or -1.")
    return _known(Power(degree, side)), positive


def shared_power(sender: Sender, kind: Power, x: Array, r: Array, q: Array, v: Array) -> Asking[Power]:
    """Normalised: the degree, from x and r of changing lengths; the length of q must not matter."""
    scales = np.concatenate([2.0**_SHARES, np.ones(len(STEPS))])
    sizes = np.concatenate([np.ones(len(_SHARES)), 2.0**STEPS])
    rows = scales[:, None] * x, np.repeat(r[None], TABLE, axis=0), sizes[:, None] * q
    u, error = yield from (sender.mirrored if kind.side == 0 else sender.against)(*rows, v, "table")
    allowed = KERNEL.off_catalogue / 10 * float(error.max())
    degree = _slope(_SHARES, u[: len(_SHARES)], allowed)
    same = u[len(_SHARES) :] / u[-1] - 1
    if not np.abs(same).max() <= allowed:
        raise ModelMismatch(
            f"weights change by {float(np.abs(same).max()):.2g} with the length of the query token: the kernel is no "
            "power of the score."
        )
    return _known(Power(degree, kind.side))


def _slope(steps: Array, shown: Array, allowed: float) -> int:
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.log2(np.abs(shown[1:] / shown[:-1])) / np.diff(steps)
    degree = int(np.rint(np.median(slopes))) if np.isfinite(slopes).all() else 0
    if degree < 1 or not np.abs(slopes - degree).max() <= allowed + 1e-9 or np.any(shown[1:] * shown[:-1] <= 0):
        raise ModelMismatch("the kernel is 0 at 0 and no power of the score: doubling a score shows no whole degree.")
    return degree


def _known(power: Power) -> Power:
    if (power.side == -1 and power.degree != 1) or (power.side == 1 and power.degree != 2):
        raise ModelMismatch(
            f"the kernel is an {'odd' if power.side < 0 else 'even'} power of the score of degree {power.degree}: the "
            "catalogue has linear, quadratic, and ReLU and its powers."
        )
    return power


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


def widest_tree(directions: Array) -> tuple[list[tuple[int, int]], float]:
    """Edges (parent, child) that reach all rows of `directions` (n, d) from row 0, and the smallest sine of an edge.

    The tree whose cosines are smallest: neighbours are as far from parallel as they can be.
    """
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    cosine = np.minimum(np.abs(unit @ unit.T), 1.0)
    # A weight near 0 would be no edge.
    tree = minimum_spanning_tree(1 + cosine)
    order, parent = breadth_first_order(tree, 0, directed=False)
    edges = [(int(parent[k]), int(k)) for k in order[1:]]
    largest = max((float(cosine[i, j]) for i, j in edges), default=0.0)
    return edges, float(np.sqrt(max(1 - largest**2, 0.0)))


def along(edges: list[tuple[int, int]], ratios: Array) -> Array:
    """Sizes (n,) from the ratio child / parent of every edge, the first row of size 1."""
    sizes = np.ones(len(edges) + 1)
    for (i, j), ratio in zip(edges, ratios, strict=True):
        sizes[j] = sizes[i] * ratio
    return sizes
