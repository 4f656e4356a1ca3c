"""Distance of one-layer language models: their circuits over tokens and places, which no choice of a basis changes."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model
from unsoftmax.models.distance import distance
from unsoftmax.models.equivalence import equivalent
from unsoftmax.models.token_layer import TokenLayer

_NOTHING = 1e-12
"""Part of the answers that a head may write and still count as none."""


@distance.register
def _(model: TokenLayer, other: Model) -> float:
    """Largest relative Frobenius error of what tokens and places answer, and of each head's values and scores."""
    a, b = _alike(model, other)
    (X, basis), (Y, basis_b) = _states(a), _states(b)
    found = [_gap((X, basis), (Y, basis_b))]
    found.append(_gap((_mean(a), np.eye(len(a.origin))), (_mean(b), np.eye(len(b.origin)))))
    if a.heads != b.heads:
        return float("inf")
    cost = np.array([[_head(a, b, i, j) for j in range(b.heads)] for i in range(a.heads)]).reshape(a.heads, b.heads)
    return max([*found, _matched(cost)])


@equivalent.register
def _(a: TokenLayer, b: Model, tolerance: float = 1e-9) -> bool:
    """Heads that write nothing, and heads with the same scores, counted as one, do not matter."""
    first, second = _alike(a, b)
    return distance(_plain(first, tolerance), _plain(second, tolerance)) <= tolerance


def _alike(a: TokenLayer, b: Model) -> tuple[TokenLayer, TokenLayer]:
    """Both over the places that both know, without what a constant per prompt hides if one of them is centred."""
    if not isinstance(b, TokenLayer) or a.vocabulary != b.vocabulary:
        raise InvalidArgument("a TokenLayer can only be compared with a TokenLayer over the same vocabulary.")
    T = min(a.length, b.length)
    centred = a.centred or b.centred
    return _shown(a, T, centred), _shown(b, T, centred)


def _shown(m: TokenLayer, T: int, centred: bool) -> TokenLayer:
    basis, origin = m.basis, m.origin
    if centred:
        basis, origin = basis - basis.mean(axis=1, keepdims=True), origin - origin.mean()
    return TokenLayer(m.embeddings, m.positions[:T], m.W, m.c, m.P, basis, origin, m.centred)


def _states(m: TokenLayer) -> tuple[Array, Array]:
    """Hidden states that differences of tokens, and places, give (V + T, d), and how they answer (d, V)."""
    return np.concatenate([m.embeddings - m.embeddings.mean(axis=0), m.positions]), m.basis


def _mean(m: TokenLayer) -> Array:
    return np.asarray((m.origin + m.embeddings.mean(axis=0) @ m.basis)[None])


def _queries(m: TokenLayer) -> Array:
    """Last tokens with a 1 beside them, and places with a 0: (V + T, d + 1)."""
    ones = np.concatenate([np.ones(m.vocabulary), np.zeros(m.length)])[:, None]
    return np.concatenate([np.concatenate([m.embeddings, m.positions]), ones], axis=1)


def _head(a: TokenLayer, b: TokenLayer, i: int, j: int) -> float:
    (X, basis), (Y, basis_b) = _states(a), _states(b)
    values = _gap((X @ a.P[i], basis), (Y @ b.P[j], basis_b))
    left, right = (np.concatenate([m.W[h], m.c[h][:, None]], axis=1) for m, h in ((a, i), (b, j)))
    return max(values, _gap((X @ left, _queries(a).T), (Y @ right, _queries(b).T)))


def _gap(first: tuple[Array, Array], second: tuple[Array, Array]) -> float:
    """||L R - M S|| / ||M S||, Frobenius, by thin factorisations: no matrix over the vocabulary is formed."""
    (L, R), (M, S) = first, second
    left = np.linalg.qr(np.concatenate([L, -M], axis=1))[1]
    right = np.linalg.qr(np.concatenate([R.T, S.T], axis=1))[1]
    size = float(np.linalg.norm(left[:, L.shape[1] :] @ right[:, R.shape[0] :].T))
    error = float(np.linalg.norm(left @ right.T))
    return error / size if size > 1e-300 else error


def _matched(cost: Array) -> float:
    """Worst cost of the best matching of heads."""
    from scipy.optimize import linear_sum_assignment  # a slow import, seldom needed

    if not cost.size:
        return 0.0
    rows, columns = linear_sum_assignment(np.minimum(cost, 1e300))
    return float(cost[rows, columns].max())


def _plain(m: TokenLayer, tolerance: float) -> TokenLayer:
    """The same function: heads with the same scores added, heads that write nothing left out."""
    X, basis = _states(m)
    W, c, P = list(m.W), list(m.c), list(m.P)
    for i, j in reversed(list(combinations(range(m.heads), 2))):
        left, right = (np.concatenate([W[h], c[h][:, None]], axis=1) for h in (i, j))
        if _gap((X @ left, _queries(m).T), (X @ right, _queries(m).T)) <= tolerance and P[j].any():
            P[i], P[j] = P[i] + P[j], np.zeros_like(P[j])
    size = float(np.linalg.norm(X @ basis))
    kept = [h for h in range(m.heads) if np.linalg.norm(X @ P[h] @ basis) > _NOTHING * size]
    d = m.width
    picked = [np.array([part[h] for h in kept]) for part in (W, c, P)]
    W_, c_, P_ = (part.reshape(len(kept), *shape) for part, shape in zip(picked, ((d, d), (d,), (d, d)), strict=True))
    return TokenLayer(m.embeddings, m.positions, W_, c_, P_, m.basis, m.origin, m.centred)
