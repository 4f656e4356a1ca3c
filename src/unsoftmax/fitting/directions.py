"""What the log determines: the singular directions of J over the noise, in units in which parameters are of size 1.

A change of the parameters along a singular direction is seen with an error 1 / s. The rank of J decides what is
known, not the number of records: a residual of 0 with a wrong W occurs where J falls two short of full rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.fitting.blocks import Blocks
from unsoftmax.fitting.heads import HeadsAt, Shape
from unsoftmax.probes.base import Array

_SPAN = 1e-13
"""Eigenvalues of token moments below this share of the largest are directions no token has (3e-7 in length)."""


@dataclass(frozen=True, eq=False)
class Directions:
    """`s` (k,): parameter units over noise of each direction; `V` (k, freedom): the directions in scaled tangent
    coordinates; `T` (unknowns, freedom): scaled tangent coordinates as steps of the unknowns."""

    s: Array
    V: Array
    T: Array

    def unseen(self, limit: float) -> Array:
        """Which directions (k,) have an error above `limit` units."""
        return self.s * limit < 1

    def covariance_root(self, limit: float) -> Array:
        """R (unknowns, seen) with covariance R R' of the unknowns for noise of deviation 1, along seen directions."""
        seen = ~self.unseen(limit)
        return np.asarray(self.T @ (self.V[seen].T / self.s[seen]))

    def step(self, rows: Array, left: Array, limit: float) -> Array:
        """The least-squares step (unknowns,) for weighted residuals `rows`, unseen directions left alone."""
        seen = ~self.unseen(limit)
        return np.asarray(-self.T @ (self.V[seen].T @ ((left.T @ rows)[seen] / self.s[seen])))


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


def directions(blocks: Blocks, shape: Shape, x: Array, at: HeadsAt, deviations: Array) -> tuple[Directions, Array]:
    """Directions of J / deviations at x, and the left singular vectors (n m, k)."""
    T = tangent(shape, x, units_of(blocks, shape, x))
    U, s, Vt = np.linalg.svd((at.jacobian() / deviations[:, None]) @ T, full_matrices=False)
    if len(s) < T.shape[1]:  # fewer rows than unknowns: the rest is not seen at all
        missing = T.shape[1] - len(s)
        Vt = np.concatenate([Vt, np.linalg.svd(Vt)[2][len(s) :]])
        s, U = np.concatenate([s, np.zeros(missing)]), np.concatenate([U, np.zeros((len(U), missing))], axis=1)
    # What is rounding in J itself is no signal, whatever the noise.
    s = np.where(s > len(s) * 2.0**-52 * s[0], s, 1e-300)
    return Directions(s, Vt, T), U


@dataclass(frozen=True)
class Spans:
    """Dimensions that the log's tokens, their differences within a sequence, and its query tokens span, of d."""

    tokens: int
    differences: int
    queries: int
    dim: int

    def unknowns(self, shape: Shape) -> int:
        """Unknowns that sequences of such tokens can show at most."""
        k, q, r = self.differences, self.queries, shape.rank
        scores = k * q if r is None or r >= min(k, q) else r * (k + q - r)
        return shape.heads * (scores + shape.outputs * self.tokens)

    def sentences(self) -> list[str]:
        """What the log never varies, in words."""
        said = []
        if self.tokens < self.dim:
            said.append(f"its tokens span {self.tokens} of {self.dim} dimensions")
        if self.differences < self.tokens:
            said.append(f"tokens of one sequence differ along {self.differences} of {self.dim} dimensions only")
        if self.queries == 1:
            said.append("it never varies the query token")
        elif self.queries < self.tokens:
            said.append(f"it never varies the query token along {self.dim - self.queries} of {self.dim} dimensions")
        return said


def spans(blocks: Blocks) -> Spans:
    """Ranks from second moments."""
    d = blocks.q.shape[1]
    all_, off = np.zeros((d, d)), np.zeros((d, d))
    for block in blocks:
        X = block.tokens.reshape(-1, d)
        all_ += X.T @ X
        D = (block.tokens - block.tokens[:, -1:]).reshape(-1, d)
        off += D.T @ D
    return Spans(_rank(all_), _rank(off), _rank(blocks.q.T @ blocks.q), d)


def _rank(A: Array) -> int:
    values = np.linalg.eigvalsh(A)
    return int((values > _SPAN * max(float(values[-1]), 1e-300)).sum())
