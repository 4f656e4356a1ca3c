"""Vectors known up to scale: null vectors, and the scales of points whose affine combinations are known too.

Theory: docs/theory/attention-layer.md, "LayerNorm after".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd


def null_vector(M: Array) -> tuple[Array, float]:
    """v (n,) with M v = 0 for M (m, n), columns brought to one size first; and how clearly it is the only one.

    Clarity: the smallest singular value over the next, 0 if the null vector is exact, 1 if there are two.
    """
    if len(M) < M.shape[1] - 1:
        return np.zeros(M.shape[1]), 1.0
    sizes = np.linalg.norm(M, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    R = np.linalg.qr(M / sizes, mode="r") if len(M) > M.shape[1] else M / sizes
    _, s, Vt = svd(np.asarray(R))
    smallest = s[-1] if len(s) == M.shape[1] else 0.0
    clarity = float(smallest / s[M.shape[1] - 2]) if s[M.shape[1] - 2] > 0 else 1.0
    return np.asarray(Vt[-1] / sizes), clarity


def scales_of_points(points: Array, combined: Array, weights: Array, fixed: Array | None = None) -> Array:
    """Scales r (n,) with r_j points[j] = s_j, from combinations sum_j weights[i, j] s_j seen up to scale.

    points (n, k), combined (c, k), weights (c, n). `fixed` (f, n + c) adds equations sum_j fixed[e, j] r_j x_j = 0
    over points and combinations. The overall scale is free; the first r is positive.
    """
    n, c = len(points), len(combined)
    everything = np.vstack([points, combined])
    relations = np.hstack([weights, -np.eye(c)])
    relations = relations if fixed is None else np.vstack([relations, fixed])
    M = np.vstack([(row[:, None] * everything).T for row in relations])
    r, clarity = null_vector(M)
    if not clarity < 0.1:
        raise ModelMismatch(
            "the scales of normalised answers are not determined: the answers do not lie on a LayerNorm's sphere, or "
            "are noisier than one-token queries show."
        )
    r = r * np.sign(r[0]) if r[0] != 0 else r
    return np.asarray(r[:n])
