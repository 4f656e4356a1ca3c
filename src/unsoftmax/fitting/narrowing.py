"""Large dimensions of which the tokens span a part: the fit runs in coordinates of that part, and comes back wide.

A table of 100 words in 384 dimensions shows W on 100 of them, 10,000 unknowns instead of 147,000. Along the others the
log shows nothing, and the parameters are left at 0. "What a log determines" in docs/logs.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.log import Log
from unsoftmax.fitting.shape import Shape
from unsoftmax.fitting.spans import Spans
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Model
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Narrowed:
    """`basis` (d, k): the coordinates x @ basis in which a fit ran, orthogonal and of unit mean square over the tokens;
    None: it ran in all d dimensions. Words share a large mean, beside which their differences would hardly count."""

    basis: Array | None = None

    def log(self, log: Log) -> Log:
        """The log with its tokens (or its table) in k coordinates."""
        if self.basis is None:
            return log
        tokens = log.tokens if log.table is not None else log.tokens @ self.basis
        table = None if log.table is None else log.table @ self.basis
        return Log(tokens, log.answers, log.lengths, table, log.tolerance, log.dtype)

    def model(self, model: Model) -> Model:
        """The model of tokens in all dimensions: f(x) = g(B'x)."""
        B = self.basis
        if B is None:
            return model
        if isinstance(model, LowRankHead):
            return replace(model, K=B @ model.K, Q=B @ model.Q, v=B @ model.v)
        if isinstance(model, (SingleHead, MultiHead)):
            return replace(model, W=B @ model.W @ B.T, v=model.v @ B.T)
        assert isinstance(model, AttentionLayer)
        return replace(model, K=model.K @ B.T, Q=model.Q @ B.T, c=model.c @ B.T, V=model.V @ B.T)

    def errors(self, errors: dict[str, Array]) -> dict[str, Array]:
        """Standard errors of entries: a sum of independent ones with the squares of the basis as weights."""
        if self.basis is None:
            return errors
        S = self.basis**2
        return {
            name: np.sqrt(S @ error**2 @ S.T) if name == "W" else np.sqrt(error**2 @ S.T)
            for name, error in errors.items()
        }

    def shape(self, shape: Shape) -> Shape:
        """The shape in all d dimensions."""
        return shape if self.basis is None else replace(shape, dim=len(self.basis))

    def hidden(self, number: int, basis: Array | None, shape: Shape) -> tuple[int, Array | None]:
        """Directions that the log does not show, (k,) and written out where that is small enough, in all dimensions."""
        B, wide = self.basis, self.shape(shape)
        if B is None:
            return number, basis
        total = number + wide.freedom - shape.freedom
        size = wide.heads * wide.dim * (wide.dim + wide.outputs)
        if shape.rank is not None or total * size > FITTING.largest_basis or (number and basis is None):
            return total, None
        U = np.linalg.qr(B, mode="complete")[0]
        k, parts = B.shape[1], []
        for row in basis if basis is not None else ():
            W, P = np.split(row, [shape.scores])
            W = B @ W.reshape(shape.heads, k, k) @ B.T
            parts.append(np.concatenate([W.ravel(), (P.reshape(shape.heads, shape.outputs, k) @ B.T).ravel()]))
        within = list(np.linalg.qr(np.array(parts).T)[0].T) if parts else []
        return total, np.array(within + _beyond(U, k, wide))


def narrowed(log: Log, span: Spans) -> Narrowed:
    """Coordinates of the tokens' span where all singular directions in all dimensions would be too many."""
    if span.tokens == span.dim or log.dim * (log.dim + (log.outputs or 1)) <= FITTING.most_directions:
        return Narrowed()
    basis = span.token_basis
    square = ((log.tokens if log.table is None else log.table[np.unique(log.tokens)]) @ basis) ** 2
    size = np.sqrt(square.mean(axis=0))
    return Narrowed(basis / np.maximum(size, FITTING.smallest_coordinate * size.max()))


def _beyond(U: Array, k: int, wide: Shape) -> list[Array]:
    """Unit changes of W and P along columns k, k + 1, ... of the orthogonal U (d, d)."""
    H, d, m = wide.heads, wide.dim, wide.outputs
    found = []
    for h in range(H):
        for i in range(d):
            for j in range(0 if i >= k else k, d):
                change = np.zeros((H, d, d))
                change[h] = np.outer(U[:, i], U[:, j])
                found.append(np.concatenate([change.ravel(), np.zeros(H * m * d)]))
        for o in range(m):
            for j in range(k, d):
                change = np.zeros((H, m, d))
                change[h, o] = U[:, j]
                found.append(np.concatenate([np.zeros(H * d * d), change.ravel()]))
    return found
