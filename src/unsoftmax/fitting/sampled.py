"""What a large log determines, from samples: J is too large for its singular directions, but not for products.

Noise e of one deviation per row leaves (J'J)^-1 J'e in the parameters: a few such draws, by conjugate gradients, give
the size of the errors. Directions that tokens never vary are known without J.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.fitting.directions import Spread
from unsoftmax.fitting.heads import Heads, HeadsAt, Shape
from unsoftmax.fitting.spans import Spans
from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import conjugate_gradients

_DRAWS = 2
"""Draws of noise: with thousands of unknowns each is right to a few percent, unless one direction alone is weak; two
draws miss a factor of 4 (the stated bars) in such a direction once in 25 logs, and then err towards the typical."""

_PRODUCTS = 400
"""Most products per draw; a log that needs more has directions it hardly shows."""

_ACCURACY = 1e-3
"""Relative accuracy of a draw: it is an estimate."""

_LARGEST_BASIS = 2**25
"""Numbers of a basis of undetermined directions that are still written out (256 MB)."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """Draws (k, unknowns) of the errors at x; `converged` if every one was found to its accuracy."""

    at: HeadsAt
    draws: Array
    converged: bool
    span: Spans

    @property
    def shape(self) -> Shape:
        return self.at.shape

    @property
    def certain(self) -> bool:
        return self.converged

    @property
    def rank(self) -> int:
        return self.span.unknowns(self.shape)

    def leverage(self, at: HeadsAt, deviations: Array) -> Array:
        shown = np.array([at.forward(draw) / deviations for draw in self.draws])
        return np.full(len(deviations), float((shown**2).mean()))

    def off(self, columns: Array) -> Array:
        found = [column - self.at.forward(_solved(self.at, self.at.adjoint(column))[0]) for column in columns.T]
        return np.stack(found, axis=1)

    def spread(self, limit: float) -> Spread:
        parts = [self.at.changes(draw) for draw in self.draws]
        W, P = (np.sqrt(np.mean([part[i] ** 2 for part in parts], axis=0)) for i in (0, 1))
        norms = float(np.linalg.norm(W)), float(np.linalg.norm(P))
        # Entries of two draws say little one by one: each gets the root mean square of all.
        flat = [np.full(part.shape, norm / np.sqrt(part.size)) for part, norm in zip((W, P), norms, strict=True)]
        return Spread(flat[0], flat[1], *norms)

    def hidden(self, limit: float) -> tuple[int, Array | None]:
        number = self.shape.freedom - self.rank
        size = self.shape.heads * self.shape.dim * (self.shape.dim + self.shape.outputs)
        if number == 0 or self.shape.rank is not None or number * size > _LARGEST_BASIS:
            return number, None
        return number, never_varied(self.span, self.shape)


def sampled(problem: Heads, x: Array, deviations: Array, span: Spans, seed: int) -> Sampled:
    """Draws of the errors that noise of these deviations (rows,) leaves at x."""
    rng = np.random.default_rng([seed, 0x5A])
    at = problem.at(x).weighted(1 / deviations)
    found = [_solved(at, at.adjoint(rng.standard_normal(len(deviations)))) for _ in range(_DRAWS)]
    return Sampled(at, np.array([draw for draw, _ in found]), all(done for _, done in found), span)


def _solved(at: HeadsAt, b: Array) -> tuple[Array, bool]:
    diagonal, precondition = at.preconditioner()
    least = 2.0**-52 * diagonal
    return conjugate_gradients(
        lambda p: at.adjoint(at.forward(p)) + least * p, b, lambda r: precondition(r, 0.0), _PRODUCTS, _ACCURACY
    )


def never_varied(span: Spans, shape: Shape) -> Array:
    """Orthonormal basis (k, H d d + H m d) of changes that no sequence of such tokens can show."""
    H, d, m = shape.heads, shape.dim, shape.outputs
    keys, queries, values = span.difference_basis, span.query_basis, span.token_basis
    off_keys, off_queries, off_values = (_complement(basis) for basis in (keys, queries, values))
    W = np.concatenate([np.kron(off_keys.T, np.eye(d)), np.kron(keys.T, off_queries.T)])
    P = np.kron(np.eye(m), off_values.T)
    scores, rest = np.kron(np.eye(H), W), np.kron(np.eye(H), P)
    return np.concatenate([np.pad(scores, ((0, 0), (0, rest.shape[1]))), np.pad(rest, ((0, 0), (scores.shape[1], 0)))])


def _complement(basis: Array) -> Array:
    """Orthonormal basis (d, d - k) of what the columns do not span."""
    return np.asarray(np.linalg.svd(basis, full_matrices=True)[0][:, basis.shape[1] :])
