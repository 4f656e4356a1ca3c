"""Where to spend spare queries: greedy A-optimal choice among candidate rows of a linear model.

Theory: docs/theory/multi-head.md, "Generic heads", polish.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.probes.base import Array


def covariance(A: Array) -> Array:
    """(A'A)^-1 computed in scaled columns; A (n, unknowns) in units of its noise."""
    normal = A.T @ A
    size = np.sqrt(np.diag(normal)) + 1e-300
    scaled = normal / size / size[:, None] + 1e-14 * np.eye(len(size))
    return np.asarray(np.linalg.inv(scaled) / size / size[:, None])


def gains(candidates: Array, P: Array) -> Array:
    """How much the trace of the covariance P falls if each candidate row (n, unknowns) is asked alone, (n,)."""
    S = candidates @ P
    return np.asarray(np.einsum("nk,nk->n", S, S) / (1 + np.einsum("nk,nk->n", S, candidates)))


def choose(candidates: Array, P: Array, number: int) -> tuple[Array, Array]:
    """Indices of `number` candidates, each best after those before it, and the covariance then reached."""
    P = P.copy()
    S = candidates @ P
    leverage, fall = np.einsum("nk,nk->n", S, candidates), np.einsum("nk,nk->n", S, S)
    chosen: list[int] = []
    taken = np.zeros(len(candidates), dtype=bool)
    for _ in range(min(number, len(candidates))):
        k = int(np.argmax(np.where(taken, -1.0, fall / (1 + leverage))))
        taken[k] = True
        chosen.append(k)
        row, scale = S[k].copy(), 1 / (1 + leverage[k])
        along = candidates @ row
        fall = fall - 2 * scale * along * (S @ row) + scale**2 * along**2 * (row @ row)
        leverage = leverage - scale * along**2
        S -= scale * np.outer(along, row)
        P -= scale * np.outer(row, row)
    return np.array(chosen, dtype=np.int64), P
