"""Neurons that share a kink as far as noise shows are one neuron; what cancels is none."""

from __future__ import annotations

import numpy as np

from unsoftmax.probes.base import Array

_SIGMAS = 20.0


def distinct(U: Array, s: Array, lin: Array, noise: Array) -> tuple[Array, Array, Array]:
    """lin . x + sum s_k ReLU(U_k . x) with parallel and opposite neurons added up: U (m, d), s, lin again.

    Two kinks are the same if their directions differ by no more than the noise (m,) of the U_k explains.
    """
    size = np.linalg.norm(U, axis=1)
    unit = U / np.maximum(size, 1e-300)[:, None]
    spread = _SIGMAS * noise / np.maximum(size, 1e-300)
    cosine = unit @ unit.T
    order = np.argsort(spread)
    taken = np.zeros(len(s), dtype=bool)
    rows, signs = [], []
    for i in order:
        if taken[i]:
            continue
        near = np.flatnonzero(~taken & (np.abs(cosine[i]) > 0.99))
        apart = np.linalg.norm(unit[near] - np.sign(cosine[i, near])[:, None] * unit[i], axis=1)
        group = near[apart <= np.minimum(spread[i] + spread[near], 1e-3)]
        group = np.union1d(group, [i])
        taken[group] = True
        opposite = group[cosine[i, group] < 0]
        # s ReLU(u) = s u + s ReLU(-u) turns the opposite ones round.
        lin = lin + s[opposite] @ U[opposite]
        total = (s[group] * np.sign(cosine[i, group])) @ U[group]
        if len(group) > 1 and np.linalg.norm(total) <= _SIGMAS * np.sqrt((noise[group] ** 2).sum()):
            continue
        sign = np.sign(total @ unit[i]) or 1.0
        rows.append(sign * total)
        signs.append(sign)
    return np.array(rows).reshape(-1, U.shape[1]), np.array(signs), lin
