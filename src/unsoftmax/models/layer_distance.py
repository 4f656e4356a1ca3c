"""Distance of attention layers: heads matched, and only what queries can show compared."""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array, Model
from unsoftmax.models.distance import beside, distance, relative


@distance.register
def _(model: AttentionLayer, other: Model) -> float:
    if not isinstance(other, AttentionLayer):
        raise InvalidArgument(f"an AttentionLayer cannot be compared with a {type(other).__name__}.")
    if (model.heads, model.residual, model.norm) != (other.heads, other.residual, other.norm):
        return float("inf")
    return max(layer_gaps(model, other).values())


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
