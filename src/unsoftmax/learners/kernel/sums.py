"""Plain sums f(X) = sum kappa(x_i'W q) (x_i.v), kappa a power: rows x'W up to their sizes, the sizes, then v.

All answers about one token x have x.v in common, so their ratios are ratios of scores: d queries show the direction of
x'W, whatever v is.

Theory: docs/theory/kernels.md, "Powers of the score", plain sums.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.kernel.degree import summed_power
from unsoftmax.learners.kernel.ratios import Power, Sender, signed, spread
from unsoftmax.probes.base import Array
from unsoftmax.solvers.angles import along


def plain_sum(sender: Sender, rng: np.random.Generator) -> Asking[tuple[Array, Array, Power, float]]:
    """W (d, d) and v (d,) up to W / c, c^p v, the power, and the relative error of W."""
    d = sender.spec.dim
    X, B = (np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2))
    power, positive = yield from summed_power(sender, X[0], B[0])
    i, j = np.divmod(np.arange(d * d), d)
    G, off = yield from sender.summed(power, X[i], B[j], "main")
    G, off = G.reshape(d, d), off.reshape(d, d)
    best = np.abs(G).argmax(axis=1)
    top = G[np.arange(d), best]
    if not np.abs(top).all():
        raise NotIdentifiable("a row of W, or the value of a token, is 0: the sizes of rows cannot be compared.")
    rows = power.root(G / top[:, None])
    if power.side > 0:
        more, _ = yield from sender.summed(power, X[i], B[best[i]] + B[j], "signs")
        rows = signed(rows, rows**2, more.reshape(d, d) / top[:, None])
        rows[np.arange(d), best] = 1.0
    edges, sine = spread(rows, sender)
    ratios = yield from _sizes(sender, power, X, B, rows, edges)
    sizes = along(edges, ratios)
    T = sizes[:, None] * rows
    value = top / power.odd(sizes)
    if power.side == 0 and positive != (T[0, 0] > 0):
        # A ReLU tells x from -x, which the pairs of both did not.
        T, value = -T, -value
    wrong = np.abs(T) * (off + off[np.arange(d), best][:, None]) / power.degree
    # A direction off by an angle shows a part of the other row, over the sine, where it should show none.
    error = float(np.linalg.norm(wrong) / np.linalg.norm(T)) * (1 + 1 / sine)
    return np.linalg.solve(X, T) @ np.linalg.inv(B.T), np.linalg.solve(X, value), power, error


def _sizes(
    sender: Sender, power: Power, X: Array, B: Array, rows: Array, edges: list[tuple[int, int]]
) -> Asking[Array]:
    """Size of row j over that of row i for every edge (i, j): x_i + x_j at queries that see one of the rows only."""
    if not edges:
        return np.zeros(0)
    x = np.array([X[i] + X[j] for i, j in edges])
    c = np.array([np.linalg.pinv(rows[[i, j]]).T for i, j in edges])
    asked = [c[:, 0] @ B, c[:, 1] @ B] + ([c.sum(axis=1) @ B] if power.side > 0 else [])
    g, _ = yield from sender.summed(power, np.tile(x, (len(asked), 1)), np.concatenate(asked), "sizes")
    g = g.reshape(len(asked), len(edges))
    ratio = power.root(g[1] / g[0])
    return signed(ratio, g[1] / g[0], g[2] / g[0]) if power.side > 0 else ratio
