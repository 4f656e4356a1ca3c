"""Heads as the matrices of low rank in the span of a few mixtures of them, however their ranges overlap.

Mixtures J_k = sum_h sigma_kh P_h of H heads span what the P_h span. Once the span is brought to even row and column
sums of squares, which large and small values of all heads share alike, a matrix of Frobenius norm 1 in it has the most
Schatten-4 norm where its rank is low: the power iteration X -> X X'X climbs to one head after the other. Its last
digits come from the null spaces: what a head writes into outputs that it lacks, of tokens that it does not see, is 0.

Theory: docs/theory/attention-layer.md, "Layers of language models", heads that overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd

_EVEN_ROUNDS = 3
"""Times that rows and columns are evened out in turn: more change the sums of squares by a few per cent."""

_FLOOR = 1e-6
"""Least sum of squares over the largest up to which rows are evened out: below it stands what steps bend."""

_STEPS = 300
"""Power steps at most: from a random start 10 to 60 mostly, since every step squares the lead of the leading head."""

_STARTS = 40
"""Random starts for every head, at most: each of 16 heads was found at its first."""

_SAME = 0.9
"""Cosine of two members from which on they are one found twice: different heads are nearly at right angles here."""

_NULL = 1e-2
"""What a member leaves in its null spaces over what the next best mixture does: true ranks leave what the mixtures are
known to, 1e-5 of steps of 1e-5, and a rank too small by one a tenth and more unless that direction hardly counts."""

_ALONE = 1e-3
"""Least that the next best mixture leaves in those null spaces, of norm 1: 0.1 and more where members are alone, and
rounding where they share their rows or columns, so that mixtures of them have their rank as well."""

_OVERDETERMINED = 2
"""Entries of a null space over the matrices in the span, at least: some mixture always leaves nothing in as few."""


@dataclass(frozen=True, eq=False)
class Members:
    """P (H, n, m) matrices that add up to the whole; rank (H,) as far as the mixtures show it; shares (K, H):
    mixture k is sum_h shares[k, h] P_h. left: worst of what members leave in their null spaces, of their size."""

    P: Array
    rank: Array
    shares: Array
    left: float


def members(mixtures: Array, whole: Array, H: int) -> Members | None:
    """mixtures (K, n, m) of H matrices that add up to `whole` (n, m); None if no H of low rank span them."""
    K, n, m = mixtures.shape
    span = svd(mixtures.reshape(K, -1), full_matrices=False)[2][:H].reshape(H, n, m)
    found = [_annihilated(span, c) for c in _climbed(span)]
    if len(found) < H or any(one is None for one in found):
        return None
    coordinates = np.array([one[0] for one in found if one is not None])
    if np.linalg.cond(coordinates) > 1 / _FLOOR:
        return None
    flat = span.reshape(H, -1)
    sizes = np.linalg.solve(coordinates.T, flat @ whole.ravel())
    P = np.tensordot(coordinates * sizes[:, None], span, 1)
    shares = np.linalg.solve((coordinates * sizes[:, None]).T, flat @ mixtures.reshape(K, -1).T).T
    ranks = np.array([one[1] for one in found if one is not None])
    return Members(P, ranks, shares, max(one[2] for one in found if one is not None))


def outside(mixtures: Array, whole: Array, H: int) -> float:
    """Part of `whole` (n, m) outside the H-dimensional span of the mixtures (K, n, m), relative to it."""
    span = svd(mixtures.reshape(len(mixtures), -1), full_matrices=False)[2][:H]
    flat = whole.ravel()
    return float(np.linalg.norm(flat - span.T @ (span @ flat)) / np.linalg.norm(flat))


def _climbed(span: Array) -> list[Array]:
    """Coordinates (H,) in `span` (H, n, m) of matrices of large Schatten-4 norm, as many different ones as show."""
    H = len(span)
    Q, R = np.linalg.qr(_evened(span).reshape(H, -1).T)
    basis, back = Q.T.reshape(span.shape), np.linalg.inv(R)
    rng, found = np.random.default_rng(H), list[Array]()
    for _ in range(_STARTS * H):
        if len(found) == H:
            break
        c = rng.standard_normal(H)
        if found:
            known = np.array(found)
            c = c - np.linalg.pinv(known) @ (known @ c)
        c /= np.linalg.norm(c)
        for _ in range(_STEPS):
            X = np.tensordot(c, basis, 1)
            climbed = np.tensordot(basis, X @ X.T @ X, 2)
            climbed /= np.linalg.norm(climbed)
            c, moved = climbed, float(np.linalg.norm(climbed - c))
            if moved < _FLOOR:
                break
        if all(abs(float(c @ one)) < _SAME for one in found):
            found.append(c)
    return [back @ c for c in found]


def _evened(span: Array) -> Array:
    """L span R, each row and each column of all matrices together as large as any other."""
    C = span
    for _ in range(_EVEN_ROUNDS):
        C = np.einsum("ij,kjl->kil", _inverse_root(np.einsum("kij,klj->il", C, C)), C)
        C = C @ _inverse_root(np.einsum("kij,kil->jl", C, C))
    return np.asarray(C)


def _inverse_root(G: Array) -> Array:
    sizes, vectors = np.linalg.eigh(G)
    return np.asarray((vectors / np.sqrt(np.maximum(sizes, _FLOOR * sizes[-1]))) @ vectors.T)


def _annihilated(span: Array, start: Array) -> tuple[Array, int, float] | None:
    """Coordinates (H,), rank and what is left in the null spaces: the least rank that leaves little; None if none."""
    low, high, best = 0, min(span.shape[1:]), None
    while high - low > 1:
        rank = (low + high) // 2
        c, left, next_best = _at_rank(span, start, rank)
        equations = (span.shape[1] - rank) * (span.shape[2] - rank)
        if left < _NULL * next_best and next_best > _ALONE and equations >= _OVERDETERMINED * len(span):
            high, best = rank, (c, rank, left)
        else:
            low = rank
    return best


def _at_rank(span: Array, start: Array, rank: int) -> tuple[Array, float, float]:
    """The mixture (H,) near `start` that is least in the null spaces of a matrix of this rank; how much, and how much
    the next best one."""
    c = start / np.linalg.norm(start)
    for _ in range(20):
        U, _, Vt = svd(np.tensordot(c, span, 1))
        rest = (U[:, rank:].T @ span @ Vt[rank:].T).reshape(len(span), -1)
        sizes, vectors = np.linalg.eigh(rest @ rest.T)
        new = vectors[:, 0] * np.sign(vectors[:, 0] @ c)
        moved, c = float(np.linalg.norm(new - c)), new
        if moved < 1e-12:
            break
    return c, float(np.sqrt(max(sizes[0], 0.0))), float(np.sqrt(max(sizes[min(1, len(sizes) - 1)], 0.0)))
