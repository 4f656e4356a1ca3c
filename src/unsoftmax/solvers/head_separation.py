"""Heads told apart by algebra alone: Y(s, k) = sum_h sigma(t_h(s) - log k) r_h, nothing known but Y.

A head is a linear functional c of the answers with c'Y(s, k) = sigma(t(s) - log k). At two k this is A and B with
k2 B - k1 A = (k2 - k1) A B, whatever t is: linear in the pair (cc', c). The n heads span the solutions, so two random
elements of that space, X = sum_h x_h c_h c_h', have the c_h as their common eigenvectors. No starts, no counts; the
residues r_h need only be independent, so n is at most the width of the answers, and ranges of heads may overlap.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", heads apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd
from unsoftmax.solvers.subspace import widest_gap

_PENCILS = 20
"""Pairs of random elements of the solution space that are tried: the one with the widest gap between eigenvalues wins,
and twenty leave a gap of a tenth of the typical one with a chance of 1e-4."""

_READABLE = 1e-4
"""Weights nearer to 0 or 1 are left out of logits: at the 1e-8 of answers far out they are known to four digits."""


@dataclass(frozen=True, eq=False)
class Separation:
    """Heads found in answers (m, K, d): logits t (m, n), their reliability (m, n) and residues R (d, n).

    `spread` (m, n): how far the K readings of a logit are apart, what errors of answers and heads leave open.

    `isolation`: how far the solutions stand apart, the smallest singular value outside the
    solution space over the largest inside; near 1 the heads cannot be told apart.
    """

    t: Array
    reliability: Array
    spread: Array
    R: Array
    isolation: float


def count_heads(Y: Array, floor: float) -> int:
    """Rank of the answers (..., d): the widest gap of the spectrum whose lower end is below `floor`, or full rank."""
    s = np.linalg.svd(Y.reshape(-1, Y.shape[-1]), compute_uv=False)
    return widest_gap(s, floor)[0] if s[0] > 0 else 0


def settings_needed(n: int, ks: int, over: float) -> int:
    """Settings s with `ks` values of k each that overdetermine the n (n + 3) / 2 unknowns of (cc', c) by `over`."""
    return int(np.ceil(over * n * (n + 3) / (ks * (ks - 1))))


def separate(Y: Array, k: Array, n: int, rng: np.random.Generator) -> Separation | None:
    """The n heads in answers Y (m, K, d) at k (K,); None if no real pencil tells them apart."""
    flat = Y.reshape(-1, Y.shape[2])
    _, sizes, Vt = svd(flat, full_matrices=False)
    whiten = Vt[:n].T / sizes[:n] * np.sqrt(len(flat))
    Z = Y @ whiten
    space, isolation = _solutions(Z, k, n)
    C = eigenvectors(space, rng)
    if C is None:
        return None
    weights = Z @ C
    weights = weights * _scales(weights, k)
    seen = np.clip(weights, _READABLE, 1 - _READABLE)
    t = np.log(seen / (1 - seen)) + np.log(k)[None, :, None]
    trust = (seen * (1 - seen)) ** 2 * ((weights > _READABLE) & (weights < 1 - _READABLE))
    total = trust.sum(axis=1)
    mean = (trust * t).sum(axis=1) / np.maximum(total, 1e-300)
    R = np.linalg.lstsq(weights.reshape(-1, n), flat, rcond=None)[0].T
    spread = np.sqrt((trust * (t - mean[:, None]) ** 2).sum(axis=1) / np.maximum(total, 1e-300))
    return Separation(mean, np.sqrt(total), spread, R, isolation)


def _solutions(Z: Array, k: Array, n: int) -> tuple[Array, float]:
    """Symmetric matrices (n, n, n) spanning all sum_h x_h c_h c_h', from whitened answers Z (m, K, n)."""
    i, j = np.triu_indices(n)
    rows = []
    for a, b in combinations(range(len(k)), 2):
        A, B = Z[:, a], Z[:, b]
        # The unknown c_i c_j of i != j multiplies both A_i B_j and A_j B_i.
        product = A[:, i] * B[:, j] + np.where(i == j, 0.0, A[:, j] * B[:, i])
        rows.append(np.hstack([-(k[b] - k[a]) * product, k[b] * B - k[a] * A]) / (k[a] + k[b]))
    M = np.concatenate(rows)
    size = np.linalg.norm(M, axis=0)
    null, s = null_space(M / size, n)
    return symmetric((null / size)[:, : len(i)]), float(s[-n - 1] / max(s[-n], 1e-300)) if len(s) > n else np.inf


def null_space(M: Array, n: int) -> tuple[Array, Array]:
    """The n right vectors (n, unknowns) that a tall M shrinks most, and its singular values; from its triangle, which
    is all that they need."""
    _, s, Nt = svd(np.asarray(np.linalg.qr(M, mode="r")), full_matrices=True)
    return Nt[-n:], s


def symmetric(rows: Array) -> Array:
    """Symmetric matrices (n, n, n) from n rows of their upper triangles."""
    n = len(rows)
    i, j = np.triu_indices(n)
    X = np.zeros((n, n, n))
    X[:, i, j] = X[:, j, i] = rows
    return X


def eigenvectors(space: Array, rng: np.random.Generator) -> Array | None:
    """Common eigenvectors C (n, n) of the pencils of a space of symmetric matrices (n, n, n)."""
    n = len(space)
    best, found = -np.inf, None
    for _ in range(_PENCILS):
        Xa, Xb = np.tensordot(rng.standard_normal((2, n)), space, axes=1)
        try:
            values, C = np.linalg.eig(np.linalg.solve(Xb.T, Xa.T).T)
        except np.linalg.LinAlgError:
            continue
        apart = np.abs(values[:, None] - values) + np.where(np.eye(n, dtype=bool), np.inf, 0.0)
        gap = float(apart.min() / np.abs(values).max()) if n > 1 else 1.0
        if np.abs(values.imag).max() <= 1e-6 * np.abs(values).max() and gap > best:
            best, found = gap, C.real
    return found


def _scales(weights: Array, k: Array) -> Array:
    """Factors (n,) that make weights (m, K, n), known up to one factor per head, fulfil their equation."""
    above, below = np.zeros(weights.shape[2]), np.zeros(weights.shape[2])
    for a, b in combinations(range(len(k)), 2):
        linear = k[b] * weights[:, b] - k[a] * weights[:, a]
        product = (k[b] - k[a]) * weights[:, a] * weights[:, b]
        above += (linear * product).sum(axis=0)
        below += (product * product).sum(axis=0)
    return above / np.maximum(below, 1e-300)
