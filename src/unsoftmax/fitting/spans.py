"""What the tokens of a log span: dimensions that no record varies cannot be known from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.fitting.blocks import Blocks
from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.shape import Shape
from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Spans:
    """Orthonormal bases (d, k) of what the tokens span, their differences within a sequence, and the query tokens."""

    token_basis: Array
    difference_basis: Array
    query_basis: Array

    @property
    def dim(self) -> int:
        return len(self.token_basis)

    @property
    def tokens(self) -> int:
        return self.token_basis.shape[1]

    @property
    def differences(self) -> int:
        return self.difference_basis.shape[1]

    @property
    def queries(self) -> int:
        return self.query_basis.shape[1]

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
        if self.queries == 1 < self.tokens:
            said.append("it never varies the query token")
        elif self.queries < self.tokens:
            said.append(f"it never varies the query token along {self.dim - self.queries} of {self.dim} dimensions")
        return said


def spans(blocks: Blocks) -> Spans:
    """Bases from second moments."""
    d = blocks.q.shape[1]
    all_, off = np.zeros((d, d)), np.zeros((d, d))
    for block in blocks:
        X = block.tokens.reshape(-1, d)
        all_ += X.T @ X
        D = (block.tokens - block.tokens[:, -1:]).reshape(-1, d)
        off += D.T @ D
    return Spans(_basis(all_), _basis(off), _basis(blocks.q.T @ blocks.q))


def _basis(A: Array) -> Array:
    values, vectors = np.linalg.eigh(A)
    return np.asarray(vectors[:, values > FITTING.no_span * max(float(values[-1]), 1e-300)])
