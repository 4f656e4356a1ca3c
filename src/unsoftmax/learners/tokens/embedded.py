"""With known embeddings a token head is a head of vectors, seen only on what the embeddings span.

Theory: docs/theory/token-access.md, "Token access", known embeddings.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.models.embedded import EmbeddedHead, EmbeddedLowRankHead
from unsoftmax.models.token_head import TokenHead
from unsoftmax.probes.base import Array
from unsoftmax.solvers.embedding import fit_scores, fit_values, span_of


def embedded(E: Array, head: TokenHead, rank: int) -> tuple[EmbeddedHead | EmbeddedLowRankHead, tuple[str, ...]]:
    """The vector head whose gaps are those of `head` on its known tokens, and what stays unidentifiable; E (V, d)."""
    ids = head.known
    grid = np.meshgrid(ids, ids, indexing="ij")
    gaps, errors = head.gaps(*grid), head.bounds(*grid)
    scores = fit_scores(E[ids], gaps, errors)
    v, constant, residual = fit_values(E[ids], head.values[ids])
    if scores.excess > 1 or residual > 1e-6 * float(np.abs(head.values[ids]).max()):
        raise ModelMismatch(
            "the given embeddings do not explain the head: scores are not (e_i - e_j) . (W e_j + c) "
            f"({scores.excess:.2g} times what errors allow) or values are not e_i . v (off by {residual:.2g}); "
            "check the embeddings (normalisation, positions), or learn without them."
        )
    K, Q = E, E @ scores.W.T + (0.0 if scores.c is None else scores.c)
    refit = TokenHead((K, Q), E @ v + constant)
    stated = float(np.abs(refit.gaps(*grid) - gaps).max() + errors.max())
    model: EmbeddedHead | EmbeddedLowRankHead
    if rank < E.shape[1]:
        U, sizes, Vt = np.linalg.svd(scores.W)
        root = np.sqrt(sizes[:rank])
        model = EmbeddedLowRankHead(U[:, :rank] * root, Vt[:rank].T * root, v, scores.c, constant, E, stated)
    else:
        model = EmbeddedHead(scores.W, v, scores.c, constant, E, stated)
    return model, _limits(E[ids])


def _limits(E: Array) -> tuple[str, ...]:
    """What no query over this vocabulary can show."""
    span, d = span_of(E), E.shape[1]
    said = []
    if span.dimension < d:
        said.append(
            f"the embeddings span {span.dimension} of {d} dimensions: W and v are given on that span (0 outside), the "
            "rest is not identifiable."
        )
    if span.differences < span.dimension:
        said.append(
            f"differences of embeddings span {span.differences} of the {span.dimension} dimensions: a score that is "
            "equal for all keys is not identifiable and left out."
        )
    return tuple(said)
