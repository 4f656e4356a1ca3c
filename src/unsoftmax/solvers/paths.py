"""Paths of a stack without norms. Where every head picks one token the answer is x_N + sum_paths M_path x_picked.

A path is a head, or a head above a path: its matrix is the product of its heads' P. Products tell which matrices are
heads and which head lies above which.

Theory: docs/theory/stacks.md, "Without norms".
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.layer_order import by_layer

_RANK = 1e-8
"""Singular values of responses, relative: roundings of tokens moved by 2^-16 of their length leave 1e-10."""

_INSIDE = 1e-5
"""Sine of the angle at which a token's coefficients lie in the responses' column space: others are at order one."""

_EQUAL = 1e-6
"""Relative gap of a product and a path that are the same: both are read to 1e-10."""


def picked(C: Array, Y: Array) -> tuple[Array, Array] | None:
    """Tokens (m,) and their signatures (m, d) from responses Y (K, d) = C[:, tokens] signatures; C (K, n) are random.

    None while there are too few responses to tell, or if no set of tokens explains them.
    """
    U, s, _ = np.linalg.svd(Y, full_matrices=False)
    m = int((s > _RANK * s[0]).sum()) if s[0] > 0 else 0
    if m > len(Y) - 2:
        return None
    outside = C - U[:, :m] @ (U[:, :m].T @ C)
    sine = np.linalg.norm(outside, axis=0) / np.maximum(np.linalg.norm(C, axis=0), 1e-300)
    tokens = np.flatnonzero((sine < _INSIDE) & C.any(axis=0))
    if len(tokens) != m:
        return None
    return tokens, np.linalg.lstsq(C[:, tokens], Y, rcond=None)[0]


def same_set(first: Array, second: Array) -> bool:
    """Whether two lists of signatures (m, d) are the same up to their order."""
    if len(first) != len(second):
        return False
    apart = np.linalg.norm(first[:, None] - second[None], axis=2)
    alike = apart < _EQUAL * np.linalg.norm(first, axis=1)[:, None]
    return bool((alike.sum(axis=0) == 1).all() and (alike.sum(axis=1) == 1).all())


def heads_of(M: Array) -> list[list[int]] | None:
    """Paths M (m, d, d) that are heads, by layer, lowest first; None unless all others are exactly their products."""
    m = len(M)
    flat = M.reshape(m, -1)
    products = np.einsum("aij,bjk->abik", M, M).reshape(m, m, -1)
    apart = np.linalg.norm(products[:, :, None] - flat, axis=3)
    made = np.where(apart.min(axis=2) <= _EQUAL * np.linalg.norm(products, axis=2), apart.argmin(axis=2), -1)
    primes = [k for k in range(m) if not (made == k).any()]
    layers = by_layer(made[np.ix_(primes, primes)] >= 0)
    if layers is None or m != np.prod([1 + len(layer) for layer in layers]) - 1:
        return None
    found = [[primes[i] for i in layer] for layer in layers]
    _, expected = all_paths([M[layer] for layer in found])
    gaps = np.linalg.norm(expected.reshape(m, 1, -1) - flat, axis=2)
    near = gaps.argmin(axis=1)
    close = gaps.min(axis=1) <= _EQUAL * np.linalg.norm(flat[near], axis=1)
    return found if close.all() and len(set(near.tolist())) == m else None


def all_paths(P: list[Array]) -> tuple[list[tuple[int, ...]], Array]:
    """Paths as numbers of heads from the highest down, and their matrices (m, d, d); P (H, d, d) by layer."""
    d = P[0].shape[-1]
    starts = np.cumsum([0] + [len(layer) for layer in P])
    keys: list[tuple[int, ...]] = [()]
    matrices = [np.eye(d)]
    for layer, (start, stop) in zip(P, pairwise(starts.tolist()), strict=True):
        above = [(h, layer[h - start]) for h in range(start, stop)]
        keys, matrices = (
            keys + [(h, *key) for h, _ in above for key in keys],
            matrices + [p @ M for _, p in above for M in matrices],
        )
    return keys[1:], np.array(matrices[1:])
