"""Bases of R^d chosen for v: which directions a to probe so that a . v is never small."""

from __future__ import annotations

import numpy as np

from unsoftmax.probes.base import Array


def householder_basis(v: Array) -> Array:
    """Orthogonal Z (d, d) whose rows all have |z . v| = |v| / sqrt d: no margin on the entries of v is needed."""
    d = len(v)
    unit = v / np.linalg.norm(v)
    ones = np.full(d, 1 / np.sqrt(d))
    # The reflection onto the farther of +-ones is the well conditioned one.
    h = unit + ones if unit @ ones >= 0 else unit - ones
    return np.eye(d) - np.outer(h, h) * (2 / (h @ h))


def coordinate_basis(v: Array) -> Array:
    """The paper's rows e_l, or e_l + e_p where v_l = 0, p the largest entry of v (proof of Theorem 4.1)."""
    Z = np.eye(len(v))
    Z[v == 0, np.argmax(np.abs(v))] += 1
    return Z
