"""Distance of attention layers: heads matched, and only what queries can show compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array, Model
from unsoftmax.models.distance import beside, distance, relative
from unsoftmax.models.layer_scores import DISTANCES, frequencies, same_weighing, score_table
from unsoftmax.precision import ARITHMETIC


@distance.register
def _(model: AttentionLayer, other: Model) -> float:
    if not isinstance(other, AttentionLayer):
        raise InvalidArgument(f"an AttentionLayer cannot be compared with a {type(other).__name__}.")
    if (model.residual, model.norm) != (other.residual, other.norm):
        return float("inf")
    if not (model.classic and other.classic):
        if model.heads != other.heads or not same_weighing(model, other, np.inf):
            return float("inf")
        return max(layer_gaps(model, other).values())
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
    return bool(np.linalg.norm(a - b) <= ARITHMETIC * np.linalg.norm(a))


def _wide(rows: Array, n: int) -> Array:
    return np.vstack([rows, np.zeros((n - len(rows), rows.shape[1]), rows.dtype)])


def layer_gaps(model: AttentionLayer, other: AttentionLayer) -> dict[str, float]:
    """Relative errors by parameter after matching heads; W, c and P are the worst head's.

    An offset that should be 0 (c, constant) is measured against the matrix it stands beside. Layers with positions,
    norms or biases of keys, sinks or a soft cap: W at several distances, and the scores themselves at fixed tokens.
    """
    from scipy.optimize import linear_sum_assignment  # a slow import, seldom needed

    mine, true = model.canonical(), other.canonical()
    P, P2 = mine.P, true.P
    cost = np.array([[relative(a, b) for b in P2] for a in P])
    rows, columns = linear_sum_assignment(np.minimum(cost, 1e300))
    if not (model.classic and other.classic):
        gaps = {"P": float(cost[rows, columns].max()), "constant": beside(mine.constant, true.constant, P2)}
        return gaps | _served_gaps(mine, true, rows, columns)
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


def _served_gaps(mine: AttentionLayer, true: AttentionLayer, rows: Array, columns: Array) -> dict[str, float]:
    """Gaps of canonical layers whose scores are more than x . (W_h q + c_h); heads rows[i] and columns[i] are one."""
    pairs = [(score_table(mine)[rows], score_table(true)[columns])]
    gaps = {"scores": max(relative(a, b) for table, table2 in pairs for a, b in zip(table, table2, strict=True))}
    if all(layer.features is None or not layer.features.normed for layer in (mine, true)):
        at = [(mine.W_at(D)[rows], true.W_at(D)[columns]) for D in DISTANCES]
        gaps["W"] = max(relative(a, b) for W, W2 in at for a, b in zip(W, W2, strict=True))
    theta, theta2 = frequencies(mine), frequencies(true)
    gaps["positions"] = float(np.abs(theta - theta2).max(initial=0.0)) if len(theta) == len(theta2) else np.inf
    if mine.sinks is not None and true.sinks is not None:
        gaps["sinks"] = float(np.abs(mine.sinks[rows] - true.sinks[columns]).max())
    if mine.softcap is not None and true.softcap is not None:
        gaps["softcap"] = abs(mine.softcap / true.softcap - 1)
    if true.norm == "rms" and true.eps > 0:
        gaps["eps"] = abs(mine.eps / true.eps - 1)
    return gaps


def _affine(layer: AttentionLayer) -> tuple[Array, Array]:
    gamma = np.ones(layer.outputs) if layer.gamma is None else layer.gamma
    return gamma, np.zeros(layer.outputs) if layer.beta is None else layer.beta
