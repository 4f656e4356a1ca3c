"""Heads drawn into orthogonal subspaces, for Proposition C.2 and the conjecture beside it."""

from __future__ import annotations

import numpy as np

from unsoftmax.models.base import Array
from unsoftmax.models.multi_head import MultiHead as Heads


def drawn(dims: list[int], seed: int) -> tuple[Heads, list[Array]]:
    """Heads that fill random orthogonal subspaces of these dimensions, and the subspaces' bases (d, d_h)."""
    rng = np.random.default_rng(seed)
    d = sum(dims)
    turned = np.linalg.qr(rng.standard_normal((d, d)))[0]
    bases = np.split(turned, np.cumsum(dims)[:-1], axis=1)
    W = np.array([U @ rng.standard_normal((k, k)) @ U.T / np.sqrt(k) for U, k in zip(bases, dims, strict=True)])
    v = np.array([U @ rng.standard_normal(k) for U, k in zip(bases, dims, strict=True)])
    return Heads(W, v), bases
