"""Distance of attention layers: heads matched, and only what queries can show compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array, Model
from unsoftmax.models.distance import beside, distance, relative

_EQUAL = 1e-13
"""Scores that differ by less are equal up to the rounding of W = K'Q."""


@distance.register
def _(model: AttentionLayer, other: Model) -> float:
    if not isinstance(other, AttentionLayer):
        raise InvalidArgument(f"an AttentionLayer cannot be compared with a {type(other).__name__}.")
    if (model.residual, model.norm) != (other.residual, other.norm):
        return float("inf")
    mine, true = distinct(model), distinct(other)
    return max(layer_gaps(mine, true).values()) if mine.heads == true.heads else float("inf")


def distinct(layer: AttentionLayer) -> AttentionLayer:
    """The same function with heads that queries can tell apart: equal scores are one head, P_h = 0 is none."""
    seen = layer.canonical()
    W, P = seen.W, seen.P
    groups: list[list[int]] = []
    for h in np.flatnonzero([np.any(p) for p in P]):
        alike = (g for g in groups if _same(W[g[0]], W[h]) and _same(seen.c[g[0]], seen.c[h]))
        group = next(alike, None)
        groups.append([int(h)]) if group is None else group.append(int(h))
    if len(groups) == layer.heads or not groups:
        return layer
    first, widest = [g[0] for g in groups], max(map(len, groups)) * layer.O.shape[2]
    O = np.stack([_wide(np.hstack([layer.O[h] for h in g]).T, widest).T for g in groups])
    V = np.stack([_wide(np.vstack([layer.V[h] for h in g]), widest) for g in groups])
    return replace(layer, K=layer.K[first], Q=layer.Q[first], c=layer.c[first], O=O, V=V)


def _same(a: Array, b: Array) -> bool:
    return bool(np.linalg.norm(a - b) <= _EQUAL * np.linalg.norm(a))


def _wide(rows: Array, n: int) -> Array:
    return np.vstack([rows, np.zeros((n - len(rows), rows.shape[1]), rows.dtype)])


def layer_gaps(model: AttentionLayer, other: AttentionLayer) -> dict[str, float]:
    """Relative errors by parameter after matching heads; W, c and P are the worst head's.

    An offset that should be 0 (c, constant) is measured against the matrix it stands beside.
    """
    from scipy.optimize import linear_sum_assignment  # a slow import, seldom needed

    mine, true = model.canonical(), other.canonical()
    P, P2 = mine.P, true.P
    cost = np.array([[relative(a, b) for b in P2] for a in P])
    rows, columns = linear_sum_assignment(np.minimum(cost, 1e300))
    W, W2 = mine.W[rows], true.W[columns]
    gaps = {
        "W": max(relative(a, b) for a, b in zip(W, W2, strict=True)),
        "c": max(beside(a, b, w) for a, b, w in zip(mine.c[rows], true.c[columns], W2, strict=True)),
        "P": float(cost[rows, columns].max()),
        "constant": beside(mine.constant, true.constant, P2),
    }
    if true.norm == "post":
        (gamma, beta), (gamma2, beta2) = (_affine(layer) for layer in (mine, true))
        gaps |= {"gamma": relative(gamma, gamma2), "beta": beside(beta, beta2, gamma2)}
    return gaps


def _affine(layer: AttentionLayer) -> tuple[Array, Array]:
    gamma = np.ones(layer.outputs) if layer.gamma is None else layer.gamma
    return gamma, np.zeros(layer.outputs) if layer.beta is None else layer.beta
