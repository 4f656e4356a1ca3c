"""How far rounding may take an answer of known heads: every intermediate number is off by its own unit, to first order.

Kernels differ in what they form first: W q or X'W, values of tokens or the mixed token. The sum of squares over all of
these is that of any of them up to one constant. Errors of one head are none of another's, and errors of one token's
score none of the next one's: two tokens that share a large score lose its last digits each by itself, however near to a
tie they are, and heads whose answers cancel do not cancel their errors.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.comparing.heads import Heads
from unsoftmax.models.base import Array


def forward_error(heads: Heads, X: Array, unit: float, summed: float) -> Array:
    """Root mean square error of each answer over the unit of rounding, (batch,) or (batch, outputs).

    `summed` is the unit in which sums over tokens run. One by one, the token that counts first, every addition rounds
    all of the sum, and what is below half its unit is lost.
    """
    squares, walk = X**2, X.shape[1] * (summed / unit) ** 2
    answer = heads.constant + (X[:, -1] if heads.residual else 0.0) + np.zeros((len(X), len(heads.constant)))
    total = answer**2
    for h in range(heads.count):
        scores, directions = _scores(heads, h, X)
        alpha = np.exp(scores - scores.max(axis=1, keepdims=True))
        alpha /= alpha.sum(axis=1, keepdims=True)
        value, O = X @ heads.V[h].T, heads.O[h]
        written = value @ O.T
        mixed = (alpha[:, None] @ value)[:, 0]
        part = mixed @ O.T
        moved = alpha[:, :, None] * (written - part[:, None])
        total += (moved**2 * _score_errors(heads, h, X, scores)[:, :, None]).sum(axis=1)
        total += ((moved.transpose(0, 2, 1) @ X) ** 2 @ directions[:, :, None])[:, :, 0]
        of_tokens = (alpha[:, None] ** 2 @ (squares @ heads.V[h].T ** 2 + value**2))[:, 0]
        of_sums = ((alpha[:, None] @ X)[:, 0] ** 2 @ heads.V[h].T ** 2 + mixed**2) * (1 + walk)
        total += (of_tokens + of_sums) @ O.T**2 + walk * part**2
        total += (np.abs(moved) * (alpha < summed)[:, :, None]).sum(axis=1) ** 2 / unit**2
        answer = answer + part
        total += part**2 + answer**2
    return np.asarray(np.sqrt(total[:, 0] if heads.scalar else total))


def _scores(heads: Heads, h: int, X: Array) -> tuple[Array, Array]:
    """Scores (batch, N) of one head, and squared errors (batch, d) of the key direction that all tokens share."""
    q = X[:, -1]
    u = heads.key_directions(q)[h]
    if heads.stored is not None:
        shared = q**2 @ heads.stored[h].T ** 2
    else:
        assert heads.K is not None
        assert heads.Q is not None
        query = q @ heads.Q[h].T
        shared = (query**2 + q**2 @ heads.Q[h].T ** 2) @ heads.K[h] ** 2
    return np.einsum("bnd,bd->bn", X, u), shared + u**2


def _score_errors(heads: Heads, h: int, X: Array, scores: Array) -> Array:
    """Squared relative errors (batch, N) of the exponentials: those of each token's own score, and of exp itself."""
    q, squares = X[:, -1], X**2
    u = heads.key_directions(q)[h]
    if heads.stored is not None:
        key = (X @ heads.stored[h]) ** 2 + squares @ heads.stored[h] ** 2
        query = q
    else:
        assert heads.K is not None
        assert heads.Q is not None
        key = 2 * (X @ heads.K[h].T) ** 2 + squares @ heads.K[h].T ** 2
        query = q @ heads.Q[h].T
    found = np.einsum("bnr,br->bn", key, query**2) + np.einsum("bnd,bd->bn", squares, u**2 + heads.c[h] ** 2)
    found += np.einsum("bnd,d->bn", X, heads.c[h]) ** 2
    return np.asarray(1 + scores**2 + (scores - scores.max(axis=1, keepdims=True)) ** 2 + found)
