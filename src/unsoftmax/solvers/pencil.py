"""Heads as eigenvalues: J = sum_h sigma_h P_h + rank H against P = sum_h P_h has one cluster of them per head.

Eigenvalues that come in groups of equal size: how many, and where.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd

_SMALLEST_CLUSTER = 2
"""A single eigenvalue is no cluster: it says nothing about where the next one begins."""

_RIVAL = 2.0
"""A group left out may come this much closer in width than heads in distance."""

_WIDTH = 1e-14
"""Least width of a group: rounding of eigenvalues between 0 and 1."""


_FAINTEST = 1e-9
"""Weights that differ from 0 and 1 by less are rounding: differences of answers keep as many digits."""


@dataclass(frozen=True, eq=False)
class Clusters:
    """H heads of rank s at the eigenvalues `centres` (H,); `contrast`: gaps between them over their widths."""

    rank: int
    centres: Array
    contrast: float


def find_clusters(J: Array, P: Array) -> Clusters | None:
    """Clusters of the pencil (J, P), both (n, k) with n = sum of the heads' ranks and k at most n.

    J - sigma_h P has rank n - s + 1, so sigma_h is an eigenvalue of multiplicity s - 1 - (n - k) of the pencil cut to
    k rows: the ones in which P is largest. Every H that divides n is tried; the clearest clusters win.
    """
    n, k = J.shape
    values = _eigenvalues(J, P)
    best: Clusters | None = None
    for tolerance in np.logspace(-9, -1, 17):
        kept = np.sort_complex(values[np.abs(values.imag) < tolerance])
        for H in range(1, n // _SMALLEST_CLUSTER + 1):
            size = n // H - 1 - (n - k)
            if n % H or size < _SMALLEST_CLUSTER or len(kept) < H * size:
                continue
            found = _narrowest(kept, size, H)
            if found is not None and (best is None or found[1] > best.contrast):
                best = Clusters(n // H, *found)
    return best


def _eigenvalues(J: Array, P: Array) -> Array:
    """Eigenvalues of the pencil cut to the rows in which P is largest."""
    U, sizes, Vt = svd(P, full_matrices=False)
    return np.asarray(np.linalg.eigvals((U.T @ J @ Vt.T) / sizes))


def typical_logit(J: Array, P: Array) -> float:
    """Median |logit| of the eigenvalues, which are weights of heads: how far those are from a tie."""
    values = _eigenvalues(J, P).real.clip(_FAINTEST, 1 - _FAINTEST)
    return float(np.median(np.abs(np.log(values / (1 - values)))))


def _narrowest(values: Array, size: int, H: int) -> tuple[Array, float] | None:
    """Centres and contrast of the H narrowest groups of `size` neighbours among sorted values; None if there are fewer.

    Each gap is compared with the two groups beside it, and the widest group with the narrowest that was left out.
    """
    real, aside = values.real, np.abs(values.imag)
    windows = np.lib.stride_tricks.sliding_window_view(aside, size)
    # Two conjugate values are as far apart as their imaginary parts.
    widths = np.maximum(real[size - 1 :] - real[: len(real) - size + 1], 2 * windows.max(axis=1))
    starts: list[int] = []
    for i in np.argsort(widths, kind="stable"):
        if all(abs(i - j) >= size for j in starts):
            starts.append(int(i))
        if len(starts) > H:
            break
    if len(starts) < H:
        return None
    chosen = np.sort(starts[:H])
    width = np.maximum(widths[chosen], 1e-16)
    centres = np.array([np.median(real[i : i + size]) for i in chosen])
    contrast = float((np.diff(centres) / np.maximum(width[1:], width[:-1])).min() if H > 1 else 1 / width[0])
    if len(starts) > H:
        contrast = min(contrast, _RIVAL * float(widths[starts[H]] / width.max()))
    return centres, 2 * contrast


def annihilators(J: Array, P: Array, found: Clusters, count: int, *, precise: bool = False) -> list[Array]:
    """For each head `count` orthonormal left vectors (n, count) of J - sigma_h P = 0, sigma_h refined on the way."""
    left = []
    for centre in found.centres:
        sigma = float(centre)
        for _ in range(2):
            L = left_null(J - sigma * P, count, precise=precise)
            a, b = L.T @ J, L.T @ P
            sigma = float((a * b).sum() / (b * b).sum())
        left.append(L)
    return left


def left_null(M: Array, count: int, *, precise: bool = False) -> Array:
    """The `count` orthonormal left vectors (n, count) that M (n, k) shrinks most.

    Through M M': half the digits, which is more than a first estimate needs, in a fraction of the time; `precise`
    where weak directions of M are to be told from none.
    """
    if precise:
        return np.asarray(svd(M)[0][:, ::-1][:, :count])
    return np.asarray(np.linalg.eigh(M @ M.T)[1][:, :count])


def equal_groups(values: Array) -> Clusters | None:
    """The clearest split of n values into equal groups of two and more, their size being the rank; None if n allows no
    split into several. Contrast: the middle gap between two groups over the widest one; two groups may nearly meet."""
    x, best = np.sort_complex(values), None
    # Two conjugate values are as far apart as their imaginary parts.
    x, aside = x.real, 2 * float(np.abs(x.imag).max())
    for size in (k for k in range(2, len(x)) if len(x) % k == 0):
        groups = x.reshape(-1, size)
        width = max(float((groups[:, -1] - groups[:, 0]).max()), aside) + _WIDTH
        contrast = float(np.median(groups[1:, 0] - groups[:-1, -1])) / width
        if best is None or contrast > best.contrast:
            best = Clusters(size, groups.mean(axis=1), contrast)
    return best
