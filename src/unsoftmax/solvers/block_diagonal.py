"""Finest simultaneous block diagonalisation of noisy symmetric matrices.

Matrices A_k that share invariant orthogonal subspaces: eigenvectors of a random combination of their squares lie in
single subspaces (unless eigenvalues of different blocks collide), and the A_k couple only eigenvectors of one
subspace. A collision can only merge blocks, so of several combinations the one with the most blocks is right. See
Murota, Kanno, Kojima and Kojima (2010), and Maehara and Murota (2011) for noise.

Theory: docs/theory/orthogonal-heads.md, "The conjecture".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array

_COMBINATIONS = 6
"""Random combinations of the matrices: a pair of blocks that one takes for the same, others tell apart."""

_LARGEST_PAIR = 400
"""Groups of more coefficients between them than this are not turned: the system has as many unknowns."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Orthonormal bases (d, d_h) of the subspaces, and how clearly they part.

    `across`: largest entry of any A_k between different blocks, relative to the largest entry; `within`: smallest
    coupling that holds a block together. `empty`: dimension of the common null space, which belongs to no block.
    """

    bases: list[Array]
    across: float
    within: float
    empty: int


def finest_blocks(matrices: Array, noise: float, rng: np.random.Generator) -> Blocks:
    """Common blocks of symmetric `matrices` (K, d, d) whose entries are known within `noise` times the largest."""
    size = float(np.abs(matrices).max(initial=0.0))
    if size == 0:
        return Blocks([], 0.0, np.inf, matrices.shape[1])
    scaled = matrices / size
    threshold = max(np.sqrt(noise), 10 * noise) * 0.1
    best: Blocks | None = None
    for _ in range(_COMBINATIONS):
        found = _from_combination(scaled, rng.standard_normal(len(scaled)), noise, threshold)
        if best is None or (len(found.bases), -found.across) > (len(best.bases), -best.across):
            best = found
    assert best is not None
    return best


def _from_combination(matrices: Array, weights: Array, noise: float, threshold: float) -> Blocks:
    # Squares, because sums of the A_k may be as poor in rank as each of them.
    vectors = np.linalg.eigh(np.tensordot(weights, matrices @ matrices, axes=1))[1]
    parts, _ = _components(matrices, vectors, threshold)
    for _ in range(2):
        vectors = _refined(matrices, vectors, parts)
    coupled = np.abs(vectors.T @ matrices @ vectors).max(axis=0)
    parts, within = _components(matrices, vectors, threshold)
    label = np.empty(len(vectors), dtype=np.int64)
    for k, part in enumerate(parts):
        label[part] = k
    across = float(coupled[label[:, None] != label[None, :]].max(initial=0.0))
    seen = [part for part in parts if coupled[np.ix_(part, part)].max() > 1e2 * noise]
    return Blocks([vectors[:, part] for part in seen], across, within, len(vectors) - sum(map(len, seen)))


def _components(matrices: Array, vectors: Array, threshold: float) -> tuple[list[Array], float]:
    """Columns of `vectors` grouped by what couples them, and the weakest link that holds a group together."""
    coupled = np.abs(vectors.T @ matrices @ vectors).max(axis=0)
    label = np.arange(len(coupled))
    weakest = np.inf
    rows, columns = np.nonzero(np.triu(coupled > threshold, 1))
    # Strongest couplings first: the links that join are those of a maximal spanning tree.
    for i, j in sorted(zip(rows, columns, strict=True), key=lambda pair: -coupled[pair]):
        if label[i] != label[j]:
            label[label == label[j]] = label[i]
            weakest = min(weakest, float(coupled[i, j]))
    return [np.flatnonzero(label == k) for k in np.unique(label)], weakest


def _refined(matrices: Array, vectors: Array, parts: list[Array]) -> Array:
    """Turn the groups against each other so that no A_k couples them: A^gg X - X A^hh = -A^gh for all k at once.

    One combination separates groups only as well as its eigenvalues do; all matrices together do better.
    """
    A = vectors.T @ matrices @ vectors
    turn = np.zeros_like(vectors)
    for g, first in enumerate(parts):
        for second in parts[g + 1 :]:
            m, n = len(first), len(second)
            if m * n > _LARGEST_PAIR:
                continue
            left, right = A[:, first[:, None], first], A[:, second[:, None], second]
            rows = [np.kron(a, np.eye(n)) - np.kron(np.eye(m), b.T) for a, b in zip(left, right, strict=True)]
            wanted = -A[:, first[:, None], second].reshape(-1)
            X = np.linalg.lstsq(np.vstack(rows), wanted, rcond=1e-8)[0].reshape(m, n)
            turn[np.ix_(first, second)], turn[np.ix_(second, first)] = X, -X.T
    return np.asarray(np.linalg.qr(vectors @ (np.eye(len(vectors)) + turn))[0])
