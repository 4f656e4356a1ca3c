"""Which way each neuron points: lin . x + sum s_k ReLU(U_k . x) without the linear part, if bits can be found.

s ReLU(u) = s u + s ReLU(-u), so flipping neuron k moves s_k U_k into the linear part. A network without a linear part
is a choice of bits with sum_k bit_k s_k U_k = -lin. With at most d independent neurons the bits solve a linear system;
with a few more, the undetermined ones are tried. Beyond that the search is a subset-sum problem.

Theory: docs/theory/relu-network.md, "Method".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.low_rank_table import pivot_rows

_MOST_TRIES = 14
"""Neurons beyond the dimension whose direction is found by trying: 2^14 choices take a second."""


def orientation(U: Array, s: Array, lin: Array, tolerance: float) -> Array | None:
    """Bits (m,) of the neurons to flip so that the linear part vanishes within `tolerance` |lin|; None if not found."""
    m, d = U.shape
    if not m:
        return np.zeros(0, dtype=bool) if np.linalg.norm(lin) <= tolerance else None
    D = (s[:, None] * U).T / np.linalg.norm(U, axis=1)
    pivots = pivot_rows(D.T)
    rank = min(m, d)
    free = m - rank
    if free > _MOST_TRIES:
        return None
    weights = np.linalg.norm(U, axis=1)
    chosen, others = pivots[:rank], pivots[rank:]
    tries = ((np.arange(2**free)[:, None] >> np.arange(free)) & 1).astype(float)
    targets = -lin[:, None] - D[:, others] @ (tries * weights[others]).T
    solved = np.linalg.lstsq(D[:, chosen], targets, rcond=None)[0] / weights[chosen, None]
    rounded = np.clip(np.round(solved), 0, 1)
    gaps = np.linalg.norm(D[:, chosen] @ (rounded * weights[chosen, None]) - targets, axis=0)
    best = int(np.argmin(gaps))
    if gaps[best] > tolerance * max(float(np.linalg.norm(lin)), float(np.linalg.norm(weights))):
        return None
    bits = np.zeros(m, dtype=bool)
    bits[chosen] = rounded[:, best] > 0.5
    bits[others] = tries[best] > 0.5
    return bits
