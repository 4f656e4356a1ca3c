"""Heads as eigenvalues: J = sum_h sigma_h P_h + rank H against P = sum_h P_h has one cluster of them per head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array

_SMALLEST_CLUSTER = 2
"""A single eigenvalue is no cluster: it says nothing about where the next one begins."""


@dataclass(frozen=True, eq=False)
class Clusters:
    """H heads of rank s at the eigenvalues `centres` (H,); `contrast`: smallest gap over largest width."""

    rank: int
    centres: Array
    contrast: float


def find_clusters(J: Array, P: Array, rng: np.random.Generator) -> Clusters | None:
    """Clusters of the pencil (J, P), both (n, k) with n = sum of the heads' ranks and k = n or n - 1.

    J - sigma_h P has rank n - s + 1, so sigma_h is an eigenvalue of multiplicity s - 1 - (n - k) of the pencil cut to
    k rows. Every H that divides n is tried at many widths; the one whose clusters stand farthest apart wins.
    """
    n, k = J.shape
    cut = np.linalg.qr(rng.standard_normal((n, k)))[0].T if n > k else np.eye(n)
    values = np.linalg.eigvals(np.linalg.solve(cut @ P, cut @ J))
    best: Clusters | None = None
    for tolerance in np.logspace(-10, -2, 65):
        real = np.sort(values.real[np.abs(values.imag) < 10 * tolerance])
        if len(real) < 2:
            continue
        groups = np.split(real, np.flatnonzero(np.diff(real) > tolerance) + 1)
        for H in range(1, n // _SMALLEST_CLUSTER + 1):
            s = n // H
            size = s - 1 - (n - k)
            if n % H or size < _SMALLEST_CLUSTER:
                continue
            # Rank-one terms may add an eigenvalue to a cluster by chance.
            heads = [group for group in groups if size <= len(group) <= size + 2]
            if len(heads) != H:
                continue
            centres = np.array([np.median(group) for group in heads])
            width = max(float(np.sort(np.abs(g - np.median(g)))[size - 1]) for g in heads)
            gap = float(np.diff(np.sort(centres)).min()) if H > 1 else 1.0
            contrast = gap / max(width, 1e-16)
            if best is None or contrast > best.contrast:
                best = Clusters(s, centres, contrast)
    return best


def annihilators(J: Array, P: Array, found: Clusters, count: int) -> list[Array]:
    """For each head `count` orthonormal left vectors (n, count) of J - sigma_h P = 0, sigma_h refined on the way."""
    left = []
    for centre in found.centres:
        sigma = float(centre)
        for _ in range(2):
            L = left_null(J - sigma * P, count)
            a, b = L.T @ J, L.T @ P
            sigma = float((a * b).sum() / (b * b).sum())
        left.append(L)
    return left


def left_null(M: Array, count: int) -> Array:
    """The `count` orthonormal left vectors (n, count) that M (n, k) shrinks most.

    Through M M': half the digits, which is more than a first estimate needs, in a fraction of the time.
    """
    return np.asarray(np.linalg.eigh(M @ M.T)[1][:, :count])
