"""What a large log determines, from samples: J is too large for its singular directions, but not for products.

Noise e of one deviation per row leaves (J'J)^-1 J'e in the parameters: a few such draws, by conjugate gradients, give
the size of the errors. Directions that tokens never vary are known without J.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.directions import Spread
from unsoftmax.fitting.heads import Heads, HeadsAt
from unsoftmax.fitting.shape import Shape
from unsoftmax.fitting.spans import Spans
from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import conjugate_gradients


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

    def drawn(self, rng: np.random.Generator) -> Array:
        return self.draws

    def confirmed(self, limit: float) -> Sampled:
        return self  # draws do not show the leverage of one record

    def hidden(self, limit: float) -> tuple[int, Array | None]:
        number = self.shape.freedom - self.rank
        size = self.shape.heads * self.shape.dim * (self.shape.dim + self.shape.outputs)
        if number == 0 or number * size > FITTING.largest_basis:
            return number, None
        return number, never_varied(self.span, self.shape, self.at.factors)


def sampled(problem: Heads, x: Array, deviations: Array, span: Spans, seed: int) -> Sampled:
    """Draws of the errors that noise of these deviations (rows,) leaves at x."""
    rng = np.random.default_rng([seed, 0x5A])
    at = problem.at(x).weighted(1 / deviations)
    found = [_solved(at, at.adjoint(rng.standard_normal(len(deviations)))) for _ in range(FITTING.sampled_draws)]
    return Sampled(at, np.array([draw for draw, _ in found]), all(done for _, done in found), span)


def _solved(at: HeadsAt, b: Array) -> tuple[Array, bool]:
    diagonal, precondition = at.preconditioner()
    least = 2.0**-52 * diagonal
    return conjugate_gradients(
        lambda p: at.adjoint(at.forward(p)) + least * p,
        b,
        lambda r: precondition(r, 0.0),
        FITTING.most_products,
        FITTING.draw_accuracy,
    )


def never_varied(span: Spans, shape: Shape, factors: tuple[Array, Array] | None) -> Array:
    """Orthonormal basis (k, H d d + H m d) of changes that no sequence of such tokens can show.

    Factored heads change along their own columns and rows only; these lie in what tokens span.
    """
    H, d, m = shape.heads, shape.dim, shape.outputs
    off_keys, off_queries = (_complement(basis).T for basis in (span.difference_basis, span.query_basis))
    blocks = []
    for h in range(H):
        left = span.difference_basis if factors is None else np.linalg.qr(factors[0][h])[0]
        right = np.eye(d) if factors is None else np.linalg.qr(factors[1][h])[0]
        blocks.append(np.concatenate([np.kron(off_keys, right.T), np.kron(left.T, off_queries)]))
    blocks += [np.kron(np.eye(m), _complement(span.token_basis).T)] * H
    widths = [block.shape[1] for block in blocks]
    ends = np.cumsum(widths)
    return np.concatenate(
        [np.pad(b, ((0, 0), (end - w, ends[-1] - end))) for b, w, end in zip(blocks, widths, ends, strict=True)]
    )


def _complement(basis: Array) -> Array:
    """Orthonormal basis (d, d - k) of what the columns do not span."""
    return np.asarray(np.linalg.svd(basis, full_matrices=True)[0][:, basis.shape[1] :])
