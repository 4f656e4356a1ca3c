"""Heads as the matrices of low rank in the span of a few mixtures of them, however their ranges overlap.

Heads that share their rows (values) are found as a family: any mixture of them has their rank.

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
    """P (H, n, m) matrices that add up to the whole; family (H,): those of one are known up to a mixture of each other,
    since they share their rows, and all of its mixtures have the same rank. rank (H,) as far as the mixtures show it;
    shares (K, H): mixture k is sum_h shares[k, h] P_h. left: worst of what members leave in their null spaces."""

    P: Array
    family: Array
    rank: Array
    shares: Array
    left: float

    @property
    def single(self) -> Array:
        """(H,): which members are known by themselves."""
        return np.asarray(np.bincount(self.family)[self.family] == 1)

    @property
    def alone(self) -> bool:
        """Whether all are."""
        return bool(self.single.all())


@dataclass(frozen=True, eq=False)
class _Family:
    """Coordinates (k, H) of matrices whose mixtures all have this rank; left in their null spaces."""

    coordinates: Array
    rank: int
    left: float


def members(mixtures: Array, whole: Array, H: int) -> Members | None:
    """mixtures (K, n, m) of H matrices that add up to `whole` (n, m); None if no families of low rank span them."""
    K, n, m = mixtures.shape
    span = svd(mixtures.reshape(K, -1), full_matrices=False)[2][:H].reshape(H, n, m)
    families = _families(span)
    if sum(len(one.coordinates) for one in families) != H:
        return None
    coordinates = np.vstack([one.coordinates for one in families])
    if np.linalg.cond(coordinates) > 1 / _FLOOR:
        return None
    flat = span.reshape(H, -1)
    sizes = np.linalg.solve(coordinates.T, flat @ whole.ravel())
    P = np.tensordot(coordinates * sizes[:, None], span, 1)
    shares = np.linalg.solve((coordinates * sizes[:, None]).T, flat @ mixtures.reshape(K, -1).T).T
    each = [len(one.coordinates) for one in families]
    ranks = np.repeat([one.rank for one in families], each)
    return Members(P, np.repeat(np.arange(len(each)), each), ranks, shares, max(one.left for one in families))


def outside(mixtures: Array, whole: Array, H: int) -> float:
    """Part of `whole` (n, m) outside the H-dimensional span of the mixtures (K, n, m), relative to it."""
    span = svd(mixtures.reshape(len(mixtures), -1), full_matrices=False)[2][:H]
    flat = whole.ravel()
    return float(np.linalg.norm(flat - span.T @ (span @ flat)) / np.linalg.norm(flat))


def _families(span: Array) -> list[_Family]:
    """Of `span` (H, n, m), until they are H matrices together, as far as the power iteration finds them."""
    H = len(span)
    Q, R = np.linalg.qr(_evened(span).reshape(H, -1).T)
    basis, back = Q.T.reshape(span.shape), np.linalg.inv(R)
    rng, found, known = np.random.default_rng(H), list[_Family](), np.zeros((0, H))
    for _ in range(_STARTS * H):
        if len(known) >= H:
            break
        c = rng.standard_normal(H)
        c = c - np.linalg.pinv(known) @ (known @ c) if len(known) else c
        c = _climbed(basis, c / np.linalg.norm(c))
        if len(known) and np.linalg.norm(np.linalg.pinv(known) @ (known @ c)) > _SAME:
            continue
        family = _annihilated(span, back @ c, H - len(known))
        if family is not None:
            found.append(family)
            new = family.coordinates @ R.T
            known = np.vstack([known, new / np.linalg.norm(new, axis=1, keepdims=True)])
    return found


def _climbed(basis: Array, c: Array) -> Array:
    """Coordinates (H,) in the orthonormal `basis` of a matrix of large Schatten-4 norm, from c."""
    for _ in range(_STEPS):
        X = np.tensordot(c, basis, 1)
        climbed = np.tensordot(basis, X @ X.T @ X, 2)
        climbed /= np.linalg.norm(climbed)
        c, moved = climbed, float(np.linalg.norm(climbed - c))
        if moved < _FLOOR:
            break
    return c


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


def _annihilated(span: Array, start: Array, most: int) -> _Family | None:
    """The family near `start`, of at most so many: the least rank that leaves little in its null spaces."""
    low, high, best = 0, min(span.shape[1:]), None
    while high - low > 1:
        rank = (low + high) // 2
        vectors, left = _at_rank(span, start, rank)
        # Mixtures of a family leave as little as one of them, and the next one a share.
        wide = [k for k in range(1, min(most, len(left) - 1) + 1) if left[k - 1] < _NULL * left[k] and left[k] > _ALONE]
        size = wide[0] if wide else (len(left) if left[-1] < _NULL * _ALONE and most == len(left) else 0)
        equations = (span.shape[1] - rank) * (span.shape[2] - rank)
        if size and equations >= _OVERDETERMINED * len(span):
            high, best = rank, _Family(_turned(vectors[:, :size].T), rank, float(left[size - 1]))
        else:
            low = rank
    return best


def _turned(coordinates: Array) -> Array:
    """Other coordinates (k, H) of the same family, none of which is nearly without a part in what all add up to."""
    k = len(coordinates)
    return coordinates if k == 1 else np.linalg.qr(np.random.default_rng(k).standard_normal((k, k)))[0] @ coordinates


def _at_rank(span: Array, start: Array, rank: int) -> tuple[Array, Array]:
    """Mixtures (H, H), least in the null spaces of a matrix of this rank near `start` first; what each leaves (H,)."""
    c = start / np.linalg.norm(start)
    for _ in range(20):
        U, _, Vt = svd(np.tensordot(c, span, 1))
        rest = (U[:, rank:].T @ span @ Vt[rank:].T).reshape(len(span), -1)
        sizes, vectors = np.linalg.eigh(rest @ rest.T)
        # Within a family any mixture does: the nearest is kept.
        few = vectors[:, sizes <= max(4 * sizes[0], np.finfo(float).eps)]
        new = few @ (few.T @ c)
        new /= np.linalg.norm(new)
        moved, c = float(np.linalg.norm(new - c)), new
        if moved < 1e-12:
            break
    return vectors, np.sqrt(np.maximum(sizes, 0.0))
