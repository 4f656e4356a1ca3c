"""A piecewise linear function as a chain of cell gradients, and the least-squares correction of those gradients.

Neuron k separates cell left_k from cell right_k of its chain: s_k U_k = G_right - G_left, oriented so that the right
cell is its active side. The linear part is the gradient of each chain's anchor cell minus the neurons active there.
Everything is linear in the gradients, so answers at random points correct them by linear least squares.

Neurons that share a kink as far as noise shows are one neuron; what cancels is none.

Theory: docs/theory/relu-network.md, "Method", polish.
Theory: docs/theory/relu-network.md, "Method".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsqr

from unsoftmax.probes.base import Array
from unsoftmax.solvers.cross import pivot_rows

_ROWS = 8192
"""Rows evaluated at once, so that memory stays bounded."""

_SHARP = 1e-9
"""Relative blur of a neuron below which its kink is known as well as answers are."""

_CLEAR = 10.0
"""Points keep so many blurs away from a kink, where the linear model of the correction does not hold."""

_REACHABLE = 0.25
"""Distance on the unit sphere that clears a kink, `_CLEAR` blurs, up to which points are moved off it: they end three
times as far away, and further the sphere would bend them back."""

_TURNED = 0.1
"""Cosine between a kink's normal and what of it leaves the neighbours' kinks alone, above which a move along it can
leave the kink: below it the move would be ten times as long."""

_SIGMAS = 20.0
"""Distance of two kinks, in deviations of the less certain, below which they are one neuron, and size of a sum below
which it is none: far beyond noise, for a deviation is an estimate and neurons of a network are far farther apart."""

_WIDEST = 1e-3
"""Angle, in radians, beyond which two kinks are two neurons however uncertain they are."""

_MOST_TRIES = 14
"""Neurons beyond the dimension whose direction is found by trying: 2^14 choices take a second."""


@dataclass(frozen=True, eq=False)
class CellNetwork:
    """g(x) = lin . x + sum_k s_k ReLU(U_k . x): U (m, d), s (m,) of +-1, lin (d,).

    noise (cells,) of the gradients behind it; left, right (m,) cells of each neuron; anchors, one cell per chain;
    active (m,): whether the neuron is on in its chain's anchor cell.
    """

    U: Array
    s: Array
    lin: Array
    noise: Array
    left: Array
    right: Array
    active: Array
    anchors: Array

    def of(self, x: Array) -> Array:
        """(n, d) -> (n,)."""
        y = x @ self.lin
        for k in range(0, len(x), _ROWS):
            y[k : k + _ROWS] += np.maximum(x[k : k + _ROWS] @ self.U.T, 0) @ self.s
        return np.asarray(y)

    @property
    def neuron_noise(self) -> Array:
        """Noise of each U_k, per coordinate (m,)."""
        return np.hypot(self.noise[self.left], self.noise[self.right])

    @property
    def error(self) -> float:
        """Expected error of g at a unit vector: half of the neurons are on, their errors are independent."""
        anchors = float((self.noise[self.anchors] ** 2).sum())
        return float(np.sqrt(0.5 * (self.neuron_noise**2).sum() + anchors))


def no_cells(dim: int) -> CellNetwork:
    """The zero function."""
    none = np.zeros(0, dtype=int)
    return CellNetwork(
        np.zeros((0, dim)), np.zeros(0), np.zeros(dim), np.zeros(0), none, none, np.zeros(0, dtype=bool), none
    )


def with_chain(net: CellNetwork, G: Array, noise: Array, good: Array, resolved: Array, base: Array) -> CellNetwork:
    """Add a chain of cells: G, base (n + 1, d), noise, good (n + 1,); resolved (n,) boundaries are single neurons."""
    found = np.flatnonzero(good[:-1] & good[1:] & resolved)
    cells = np.flatnonzero(good)
    if not len(cells):
        return net
    anchor = cells[np.argmin(noise[cells])]
    D = G[found + 1] - G[found]
    found, D = found[D.any(axis=1)], D[D.any(axis=1)]
    # The right cell is the active side: U grows along the circle from left to right.
    s = np.sign((D * (base[found + 1] - base[found])).sum(axis=1))
    U = s[:, None] * D
    active = found < anchor
    first = len(net.noise)
    return CellNetwork(
        np.vstack([net.U, U]),
        np.concatenate([net.s, s]),
        net.lin + G[anchor] - D[active].sum(axis=0),
        np.concatenate([net.noise, np.where(good, noise, 0.0)]),
        np.concatenate([net.left, first + found]),
        np.concatenate([net.right, first + found + 1]),
        np.concatenate([net.active, active]),
        np.append(net.anchors, first + anchor),
    )


def away_from_kinks(net: CellNetwork, x: Array) -> Array:
    """Which points (n, d) lie clear of every hyperplane that is not sharply known, so that activations are certain."""
    poor, normal, reach = _poor(net)
    clear = np.ones(len(x), dtype=bool)
    for k in range(0, len(x) if len(poor) else 0, _ROWS):
        part = x[k : k + _ROWS]
        clear[k : k + _ROWS] = (np.abs(part @ normal.T) > reach * np.linalg.norm(part, axis=1)[:, None]).all(axis=1)
    return clear


def moved_away(net: CellNetwork, x: Array) -> Array:
    """The unit vectors x (n, d), those too near to a hyperplane that is not sharply known moved away from it.

    Of a tiny neuron beside a narrow cell hardly a random point is clear. Points move along the hyperplanes on the other
    side of its cells: an answer shows the error of a cell only between the two.
    """
    for k, normal, reach in zip(*_poor(net), strict=True):
        short = np.abs(x @ normal) < 1.5 * reach
        beside = (net.right == net.left[k]) | (net.left == net.right[k])
        across = np.linalg.qr(net.U[beside].T)[0]
        along = normal - across @ (across.T @ normal)
        if reach < _REACHABLE and along @ normal > _TURNED and short.any():
            missing = np.copysign(3 * reach, x @ normal) - x @ normal
            x = x + np.outer(np.where(short, missing, 0.0), along / (along @ normal))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x)


def _poor(net: CellNetwork) -> tuple[Array, Array, Array]:
    """Neurons (k,) not sharply known, the worst last, their unit normals (k, d), and how far from one is clear (k,)."""
    size = np.linalg.norm(net.U, axis=1)
    blur = net.neuron_noise / size
    poor = np.flatnonzero(blur > _SHARP)
    poor = poor[np.argsort(blur[poor], kind="stable")]
    return poor, net.U[poor] / size[poor, None], _CLEAR * blur[poor]


def informative(net: CellNetwork, x: Array) -> Array:
    """Variance (n,) that the noise of the gradients leaves at points x (n, d): an answer where it is large says most.

    A cell counts where exactly one of the two hyperplanes around it is to the other side of its chain's anchor.
    """
    variance = np.empty(len(x))
    for k in range(0, len(x), _ROWS):
        turned = np.where((x[k : k + _ROWS] @ net.U.T > 0) != net.active, np.where(net.active, -1.0, 1.0), 0.0)
        share = np.zeros((len(turned), len(net.noise)))
        share[:, net.right] += turned
        share[:, net.left] -= turned
        share[:, net.anchors] += 1
        variance[k : k + _ROWS] = share**2 @ net.noise**2
    return variance


def corrected(net: CellNetwork, x: Array, residual: Array, sigma: float, iterations: int) -> CellNetwork:
    """Correct the gradients by residual = answer - net(x) at points x (n, d).

    Ridge regression with each gradient's own noise as its prior and sigma as the noise of answers.
    """
    m, d = net.U.shape
    cells = len(net.noise)
    on = x @ net.U.T > 0
    s, active = net.s[:, None], (net.s * net.active)[:, None]
    prior = net.noise[:, None]

    def changes(z: Array) -> tuple[Array, Array]:
        e = prior * z.reshape(cells, d)
        dU = s * (e[net.right] - e[net.left])
        return dU, e[net.anchors].sum(axis=0) - (active * dU).sum(axis=0)

    def forward(z: Array) -> Array:
        dU, dlin = changes(z)
        out = x @ dlin
        sdU = (s * dU).T
        for k in range(0, len(x), _ROWS):
            out[k : k + _ROWS] += ((x[k : k + _ROWS] @ sdU) * on[k : k + _ROWS]).sum(axis=1)
        return np.asarray(out)

    def backward(q: Array) -> Array:
        toward_lin = x.T @ q
        toward_U = np.zeros((m, d))
        for k in range(0, len(x), _ROWS):
            toward_U += (on[k : k + _ROWS] * q[k : k + _ROWS, None]).T @ x[k : k + _ROWS]
        toward_U = s * toward_U - active * toward_lin
        e = np.zeros((cells, d))
        np.add.at(e, net.right, s * toward_U)
        np.add.at(e, net.left, -s * toward_U)
        e[net.anchors] += toward_lin
        return np.asarray((prior * e).ravel())

    size = float(np.abs(residual).max(initial=0.0))
    if size == 0 or cells == 0:
        return net
    operator = LinearOperator((len(x), cells * d), matvec=forward, rmatvec=backward, dtype=float)
    z = lsqr(operator, residual / size, damp=sigma, atol=1e-14, btol=1e-14, iter_lim=iterations)[0] * size
    dU, dlin = changes(z)
    return CellNetwork(net.U + dU, net.s, net.lin + dlin, net.noise, net.left, net.right, net.active, net.anchors)


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
