"""Normalised weights f(X) = sum kappa (x_i.v) / sum kappa, kappa a power: v, columns W q up to their sizes, the sizes.

All answers about one q have the size of W q in common, which cancels: d queries show the direction of W q.

Theory: docs/theory/kernels.md, "Powers of the score", normalised.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.kernel.degree import fold, shared_power, side_of
from unsoftmax.learners.kernel.first_look import FOLDS
from unsoftmax.learners.kernel.ratios import Power, Sender, signed, spread
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.bases import householder_basis
from unsoftmax.probes.sphere import sphere, unit
from unsoftmax.solvers.angles import along

_READABLE = (2.0**-16, 2.0**14)
"""Ratios of weights that keep 1e-11 and better: outside, the reference token is rescaled and asked again."""

_ALLOWED = 1e-3
"""Gap of a fold from what a power answers: kinds are 20 % apart, and the own score of the query token leaves 2^-52."""


def normalised(sender: Sender, rng: np.random.Generator) -> Asking[tuple[Array, Array, Power, float]]:
    """W (d, d) up to its scale, v (d,), the power, and the relative error of W."""
    d = sender.spec.dim
    q = sphere(rng, (1, d))
    X = np.linalg.qr(rng.standard_normal((d, d)))[0]
    kind, v = yield from _values(sender, X, q)
    Z = householder_basis(v)
    B = np.linalg.qr(rng.standard_normal((d, d)))[0]
    r = rng.standard_normal(d)
    r = unit(r - v * (r @ v) / (v @ v))
    power = yield from shared_power(sender, kind, Z[0], r, B[0], v)
    i, j = np.divmod(np.arange(d * d), d)
    t, off = yield from _scores(sender, power, Z[i], np.repeat(r[None], d * d, axis=0), B[j], v)
    T = t.reshape(d, d)
    size = np.linalg.norm(T, axis=0)
    columns = np.linalg.solve(Z, T / size)
    edges, sine = spread(columns.T, sender)
    ratios, apart = yield from _sizes(sender, power, columns, B, v, edges)
    sizes = along(edges, ratios)
    wrong = np.linalg.norm((t * off).reshape(d, d) / size, axis=0)
    error = float(np.linalg.norm(sizes * (wrong / sine + apart.max(initial=0.0)))) / float(np.linalg.norm(sizes))
    return (columns * sizes) @ np.linalg.inv(B.T), v, power, error


def _values(sender: Sender, X: Array, q: Array) -> Asking[tuple[Power, Array]]:
    """v (d,) from [x ; -k x ; q], and the kind of kernel that the two folds of the first x show."""
    d = len(X)
    asked = [sender.tokens([X, -k * X], np.repeat(q, d, axis=0)) for k in FOLDS]
    pair = yield Probes(np.concatenate([part[:1] for part in asked]), phase="values")
    allowed = _ALLOWED + 10 * sender.noise / max(float(np.abs(pair).min()), 1e-300)
    kind = side_of(float(pair[0] / pair[1]) if pair[1] else np.inf, allowed)
    more = [part[1:] for part in (asked if kind.side == 0 else asked[:1])]
    y = yield Probes(np.concatenate(more), phase="values")
    three = np.append(pair[:1], y[: d - 1])
    if kind.side != 0:
        return kind, np.linalg.solve(asked[0][:, 0], three / fold(kind, FOLDS[0]))
    half = np.append(pair[1:], y[d - 1 :])
    # A positive score of x shows x.v both times, a negative one -k x.v.
    ahead = np.abs(three / half - 1) <= allowed
    if not (ahead | (np.abs(three / half * FOLDS[1] / FOLDS[0] - 1) <= allowed)).all():
        raise ModelMismatch("negative scores count, and neither as much as positive ones nor as little as in a ReLU.")
    return kind, np.linalg.solve(asked[0][:, 0], np.where(ahead, three, -three / FOLDS[0]))


def fold_of(kind: Power) -> float:
    """Answer to the first fold over x.v."""
    return fold(kind, FOLDS[0])


def _scores(sender: Sender, power: Power, x: Array, r: Array, q: Array, v: Array) -> Asking[tuple[Array, Array]]:
    """x'Wq over r'Wq (n,), over its size for a ReLU, and the relative error of each."""
    ask = sender.mirrored if power.side == 0 else sender.against
    u, off = yield from ask(x, r, q, v, "main")
    scale = np.ones(len(u))
    with np.errstate(divide="ignore"):
        poor = np.flatnonzero((np.abs(u) < _READABLE[0]) | (np.abs(u) > _READABLE[1]))
        step = np.rint(np.log2(np.maximum(np.abs(u[poor]), 2.0**-40)) / power.degree)
    if len(poor):
        scale[poor] = 2.0 ** np.clip(step, -20, 20)
        u[poor], off[poor] = yield from ask(x[poor], scale[poor, None] * r[poor], q[poor], v, "repair")
    t = power.root(u)
    if power.side > 0:
        both, _ = yield from ask(x + scale[:, None] * r, scale[:, None] * r, q, v, "signs")
        t = signed(t, u, both)
    return t * scale, off / power.degree


def _sizes(
    sender: Sender, power: Power, columns: Array, B: Array, v: Array, edges: list[tuple[int, int]]
) -> Asking[tuple[Array, Array]]:
    """Size of column b over that of column a for every edge (a, b), and its relative error.

    Asked at q_a + q_b, with tokens that see one of both columns only.
    """
    if not edges:
        return np.zeros(0), np.zeros(0)
    pairs = [np.linalg.pinv(columns[:, [a, b]]) for a, b in edges]
    r, x = (np.array([pair[k] for pair in pairs]) for k in (0, 1))
    # A part of v that neither column sees parts the values of the two tokens.
    apart = np.array([v - columns[:, [a, b]] @ (pair @ v) for (a, b), pair in zip(edges, pairs, strict=True)])
    free = np.linalg.norm(apart, axis=1, keepdims=True)
    part = np.divide(apart, free, out=np.zeros_like(apart), where=free > 0.1 * np.linalg.norm(v))
    x = x + np.linalg.norm(x, axis=1, keepdims=True) * part
    q = np.array([B[a] + B[b] for a, b in edges])
    u, off = yield from sender.against(x, r, q, v, "sizes")
    ratio = power.root(u)
    if power.side > 0:
        both, _ = yield from sender.against(x + r, r, q, v, "signs")
        ratio = signed(ratio, u, both)
    return ratio, off / power.degree
