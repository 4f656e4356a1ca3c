"""What the log determines: the singular directions of J over the noise, in units in which parameters are of size 1.

A change of the parameters along a singular direction is seen with an error 1 / s. The rank of J decides what is
known, not the number of records: a residual of 0 with a wrong W occurs where J falls two short of full rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from unsoftmax.fitting.blocks import Blocks
from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.heads import Heads, HeadsAt
from unsoftmax.fitting.shape import Shape, embedded
from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Spread:
    """For noise of one deviation per row: standard errors of W (H, d, d) and P (H, m, d), and those of their norms."""

    W: Array
    P: Array
    norm_W: float
    norm_P: float

    @property
    def entries(self) -> Array:
        """All of them in one vector, W raveled and then P."""
        return np.concatenate([self.W.ravel(), self.P.ravel()])


class Seen(Protocol):
    """What a fit's records say about its parameters, whether from all singular directions or from samples."""

    @property
    def certain(self) -> bool:
        """Whether the rest of what is said here was established."""

    @property
    def rank(self) -> int:
        """Directions that show at all."""

    def leverage(self, at: HeadsAt, deviations: Array) -> Array:
        """Variance of the fit at other records, in units of their own (rows,)."""

    def off(self, columns: Array) -> Array:
        """Columns (rows, k), over the deviations, with what J explains taken out."""

    def spread(self, limit: float) -> Spread:
        """Errors along the directions that are known to within `limit` units."""

    def drawn(self, rng: np.random.Generator) -> Array:
        """Errors (k, unknowns) as noise of one deviation leaves them."""

    def confirmed(self, limit: float) -> Seen:
        """The same without numbers that alone show a direction to within `limit` units: they fit whatever they are."""

    def hidden(self, limit: float) -> tuple[int, Array | None]:
        """How many directions are not, and a basis (k, H d d + H m d) of them where that is small enough to hold."""


@dataclass(frozen=True, eq=False)
class Directions:
    """All of them. `s` (k,): parameter units over noise; `V` (k, freedom): the directions in scaled tangent
    coordinates; `U` (rows, k): what they do to the answers; `T` (unknowns, freedom): coordinates as steps of x."""

    shape: Shape
    x: Array
    s: Array
    V: Array
    U: Array
    T: Array

    def unseen(self, limit: float) -> Array:
        """Which directions (k,) have an error above `limit` units."""
        return self.s * limit < 1

    @property
    def certain(self) -> bool:
        return True

    @property
    def rank(self) -> int:
        return int((~self.unseen(FITTING.visible)).sum())

    def step(self, rows: Array) -> Array:
        """The least-squares step (unknowns,) for residuals over deviations, unseen directions left alone."""
        seen = ~self.unseen(FITTING.visible)
        return np.asarray(-self.T @ (self.V[seen].T @ ((self.U.T @ rows)[seen] / self.s[seen])))

    def root(self, limit: float) -> Array:
        """R (unknowns, seen) with covariance R R' of the unknowns, along seen directions."""
        seen = ~self.unseen(limit)
        return np.asarray(self.T @ (self.V[seen].T / self.s[seen]))

    def leverage(self, at: HeadsAt, deviations: Array) -> Array:
        return np.asarray((((at.jacobian() / deviations[:, None]) @ self.root(FITTING.visible)) ** 2).sum(axis=1))

    def off(self, columns: Array) -> Array:
        Q = self.U[:, ~self.unseen(FITTING.visible)]
        return np.asarray(columns - Q @ (Q.T @ columns))

    def spread(self, limit: float) -> Spread:
        root = embedded(self.shape, self.x, self.root(limit))
        W, _, P = self.shape.split(self.x)
        errors = np.sqrt((root**2).sum(axis=1))
        norms = (float(np.linalg.norm(part)) for part in (errors[: W.size], errors[W.size :]))
        return Spread(errors[: W.size].reshape(W.shape), errors[W.size :].reshape(P.shape), *norms)

    def drawn(self, rng: np.random.Generator) -> Array:
        root = self.root(FITTING.visible)
        return np.asarray(rng.standard_normal((FITTING.drawn_errors, root.shape[1])) @ root.T)

    def without(self, which: Array) -> Directions:
        """The same as if these of the seen directions (k,) did not show."""
        s = self.s.copy()
        s[np.flatnonzero(~self.unseen(FITTING.visible))[which]] = 1e-300
        return replace(self, s=s)

    def alone(self, limit: float) -> Array:
        """Numbers (k,) without which others know some direction to worse than `limit`.

        Without number i, of leverage h, the error grows by |u_i / s| / sqrt(1 - h) along u_i / s, which needs h > 1/2.
        """
        U, s = self.U[:, ~self.unseen(limit)], self.s[~self.unseen(limit)]
        high = np.flatnonzero((U**2).sum(axis=1) > 0.5)
        off = -U @ U[high].T
        off[high, np.arange(len(high))] += 1
        off -= U @ (U.T @ off)  # once more, since 1 - h may be far below the rounding of h
        return np.asarray(high[np.linalg.norm(U[high] / s, axis=1) > limit * np.linalg.norm(off, axis=0)])

    def confirmed(self, limit: float) -> Directions:
        alone = self.alone(limit)
        if not len(alone):
            return self
        kept = np.delete(np.arange(len(self.U)), alone)
        return _taken_apart(self.shape, self.x, self.U[kept] * self.s, self.V, self.T)

    def hidden(self, limit: float) -> tuple[int, Array | None]:
        unseen = self.unseen(limit)
        if not unseen.any():
            return 0, None
        basis = np.linalg.qr(embedded(self.shape, self.x, self.T @ self.V[unseen].T))[0].T
        return len(basis), np.asarray(basis)

    def unseen_steps(self) -> Array | None:
        """Orthonormal steps (unknowns, k) of the unknowns that do not show; None if all do."""
        unseen = self.unseen(FITTING.visible)
        return np.linalg.qr(self.T @ self.V[unseen].T)[0] if unseen.any() else None


def tangent(shape: Shape, x: Array, units: tuple[float, float]) -> Array:
    """T (unknowns, freedom): steps of one unit of W (Frobenius) or P each; factors must be balanced (`joined`).

    Factors: dA is free and dB stays off the span of B, which leaves no change of W out and counts none twice.
    """
    if shape.rank is None:
        return np.diag(np.concatenate([np.full(shape.scores, units[0]), np.full(_rest(shape), units[1])]))
    _, factors, _ = shape.split(x)
    assert factors is not None
    H, d, r = shape.heads, shape.dim, shape.rank
    T = np.zeros((shape.unknowns, shape.freedom))
    column = 0
    for h, B in enumerate(factors[1]):
        sizes = np.maximum(np.linalg.norm(B, axis=0), 1e-300)
        off = np.linalg.svd(B)[0][:, r:]
        for k in range(r):
            rows = (h * d + np.arange(d)) * r + k
            T[rows, column : column + d] = np.eye(d) * units[0] / sizes[k]
            T[H * d * r + rows, column + d : column + 2 * d - r] = off * units[0] / sizes[k]
            column += 2 * d - r
    T[shape.scores :, column:] = np.eye(_rest(shape)) * units[1]
    return T


def _rest(shape: Shape) -> int:
    return shape.unknowns - shape.scores


def units_of(blocks: Blocks, shape: Shape, x: Array) -> tuple[float, float]:
    """Sizes of an entry of W and of P that count as 1: their root mean square, or what moves scores by about 1."""
    W, _, P = shape.split(x)
    square = float((blocks.q**2).mean()) or 1.0
    size = max(float(np.sqrt((W**2).mean())), 1 / (shape.dim * square))
    return size, max(float(np.sqrt((P**2).mean())), 1e-300)


def directions(blocks: Blocks, shape: Shape, x: Array, at: HeadsAt, deviations: Array) -> Directions:
    """Directions of J / deviations at x."""
    T = tangent(shape, x, units_of(blocks, shape, x))
    return _taken_apart(shape, x, (at.jacobian() / deviations[:, None]) @ T, np.eye(T.shape[1]), T)


def _taken_apart(shape: Shape, x: Array, J: Array, V: Array, T: Array) -> Directions:
    """Singular directions of J (rows, freedom), whose columns belong to the coordinates V (freedom, freedom)."""
    U, s, Vt = np.linalg.svd(J, full_matrices=False)
    if len(s) < len(V):  # fewer rows than unknowns: the rest is not seen at all
        missing = len(V) - len(s)
        Vt = np.concatenate([Vt, np.linalg.svd(Vt)[2][len(s) :]])
        s, U = np.concatenate([s, np.zeros(missing)]), np.concatenate([U, np.zeros((len(U), missing))], axis=1)
    # What is rounding in J itself is no signal, whatever the noise.
    s = np.where(s > len(s) * 2.0**-52 * s[0], s, 1e-300)
    return Directions(shape, x, s, Vt @ V, U, T)


def bent(problem: Heads, x: Array, seen: Seen, deviations: Array, spread: float) -> float:
    """How much more answers change by the errors of the fit than J says (mean squares); 1 where the model is linear.

    Noise of `spread` times the deviations (rows,). What J leaves out of a change acts as noise of that size, and moves
    directions that show well by as many of their errors.
    """
    at = problem.at(x)
    ratios = []
    for step in spread * seen.drawn(np.random.default_rng([0, 0xBE])):
        there, told = (problem.at(x + step).residual - at.residual) / deviations, at.response(step) / deviations
        ratios.append(float(there @ there) / max(float(told @ told), 1e-300))
    return float(np.mean(ratios))


def bounded(problem: Heads, seen: Directions, deviations: Array, bars: float) -> Directions:
    """What is seen, without directions along which so many errors, one way, change answers by less than half of J's.

    Towards scores without bound answers no longer change: an error bar on that side says nothing.
    """
    x, at, open_ = seen.x, problem.at(seen.x), []
    for step in bars * seen.root(FITTING.visible).T:
        told = float(np.linalg.norm(at.response(step) / deviations))
        ends = ((problem.at(x + way).residual - at.residual) / deviations for way in (step, -step))
        open_.append(min(float(np.linalg.norm(end)) for end in ends) < FITTING.shown_beside_others * told)
    return seen.without(np.array(open_, dtype=bool))
