"""Neurons that share a kink as far as noise shows are one neuron; what cancels is none.

Theory: docs/theory/relu-network.md, "Method".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.cells import CellNetwork
from unsoftmax.solvers.cross import pivot_rows

_SIGMAS = 20.0
"""Distance of two kinks, in deviations of the less certain, below which they are one neuron, and size of a sum below
which it is none: far beyond noise, for a deviation is an estimate and neurons of a network are far farther apart."""

_WIDEST = 1e-3
"""Angle, in radians, beyond which two kinks are two neurons however uncertain they are."""


def distinct(net: CellNetwork, share: float = 1.0) -> tuple[Array, Array, Array]:
    """The net's function as U (m, d), s (m,), lin (d,) with parallel and opposite neurons added up.

    Two kinks are the same if their directions differ by no more than `share` of what the noise of the U_k explains.
    A sum telescopes: the noise of a narrow cell between two neurons is in both and not in their sum.
    """
    U, s, lin = net.U, net.s, net.lin
    size = np.maximum(np.linalg.norm(U, axis=1), 1e-300)
    unit = U / size[:, None]
    spread = np.minimum(share * _SIGMAS * net.neuron_noise / size, _WIDEST)
    cosine = unit @ unit.T
    taken = np.zeros(len(s), dtype=bool)
    rows, signs = [], []
    for i in np.argsort(spread, kind="stable"):
        if taken[i]:
            continue
        near = np.flatnonzero(~taken & (np.abs(cosine[i]) > 0.99))
        apart = np.linalg.norm(unit[near] - np.sign(cosine[i, near])[:, None] * unit[i], axis=1)
        group = np.union1d(near[apart <= spread[i] + spread[near]], [i])
        taken[group] = True
        turn = np.sign(cosine[i, group])
        # s ReLU(u) = s u + s ReLU(-u) turns the opposite ones round.
        lin = lin + s[group[turn < 0]] @ U[group[turn < 0]]
        total = (s[group] * turn) @ U[group]
        if len(group) > 1 and np.linalg.norm(total) <= _SIGMAS * _noise_of_sum(net, group, turn) * np.sqrt(len(lin)):
            continue
        sign = np.sign(total @ unit[i]) or 1.0
        rows.append(sign * total)
        signs.append(sign)
    return np.array(rows).reshape(-1, U.shape[1]), np.array(signs), lin


def _noise_of_sum(net: CellNetwork, group: Array, turn: Array) -> float:
    """Noise, per coordinate, of the sum of turned neurons s_k U_k = G_right - G_left."""
    cells = np.concatenate([net.right[group], net.left[group]])
    unique, position = np.unique(cells, return_inverse=True)
    share = np.bincount(position, np.concatenate([turn, -turn]), len(unique))
    return float(np.sqrt(((share * net.noise[unique]) ** 2).sum()))


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
