"""Kernels that are 0 at 0: weights that are powers of the score, linear, quadratic, ReLU and its powers.

Plain sums f(X) = sum kappa(x_i'W q) (x_i.v), kappa a power: rows x'W up to their sizes, the sizes, then v.

All answers about one token x have x.v in common, so their ratios are ratios of scores: d queries show the direction of
x'W, whatever v is.

Normalised weights f(X) = sum kappa (x_i.v) / sum kappa, kappa a power: v, columns W q up to their sizes, the sizes.

All answers about one q have the size of W q in common, which cancels: d queries show the direction of W q.

Theory: docs/theory/kernels.md, "Powers of the score".
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Outcome
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.kernel.constants import KERNEL
from unsoftmax.learners.kernel.degree import (
    Power,
    Sender,
    along,
    fold,
    shared_power,
    side_of,
    signed,
    spread,
    summed_power,
)
from unsoftmax.models.kernel_head import KernelHead as Head
from unsoftmax.models.kernels import Kernel, power_name
from unsoftmax.precision import EPS
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.bases import householder_basis
from unsoftmax.probes.sphere import sphere, unit
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec


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
    ratios, apart = yield from _column_sizes(sender, power, columns, B, v, edges)
    sizes = along(edges, ratios)
    wrong = np.linalg.norm((t * off).reshape(d, d) / size, axis=0)
    error = float(np.linalg.norm(sizes * (wrong / sine + apart.max(initial=0.0)))) / float(np.linalg.norm(sizes))
    return (columns * sizes) @ np.linalg.inv(B.T), v, power, error


def _values(sender: Sender, X: Array, q: Array) -> Asking[tuple[Power, Array]]:
    """v (d,) from [x ; -k x ; q], and the kind of kernel that the two folds of the first x show."""
    d = len(X)
    asked = [sender.tokens([X, -k * X], np.repeat(q, d, axis=0)) for k in KERNEL.folds]
    pair = yield Probes(np.concatenate([part[:1] for part in asked]), phase="values")
    allowed = KERNEL.fold_off_power + 10 * sender.noise / max(float(np.abs(pair).min()), 1e-300)
    kind = side_of(float(pair[0] / pair[1]) if pair[1] else np.inf, allowed)
    more = [part[1:] for part in (asked if kind.side == 0 else asked[:1])]
    y = yield Probes(np.concatenate(more), phase="values")
    three = np.append(pair[:1], y[: d - 1])
    if kind.side != 0:
        return kind, np.linalg.solve(asked[0][:, 0], three / fold(kind, KERNEL.folds[0]))
    half = np.append(pair[1:], y[d - 1 :])
    # A positive score of x shows x.v both times, a negative one -k x.v.
    ahead = np.abs(three / half - 1) <= allowed
    if not (ahead | (np.abs(three / half * KERNEL.folds[1] / KERNEL.folds[0] - 1) <= allowed)).all():
        raise ModelMismatch("negative scores count, and neither as much as positive ones nor as little as in a ReLU.")
    return kind, np.linalg.solve(asked[0][:, 0], np.where(ahead, three, -three / KERNEL.folds[0]))


def _scores(sender: Sender, power: Power, x: Array, r: Array, q: Array, v: Array) -> Asking[tuple[Array, Array]]:
    """x'Wq over r'Wq (n,), over its size for a ReLU, and the relative error of each."""
    ask = sender.mirrored if power.side == 0 else sender.against
    u, off = yield from ask(x, r, q, v, "main")
    scale = np.ones(len(u))
    with np.errstate(divide="ignore"):
        poor = np.flatnonzero((np.abs(u) < KERNEL.ratios_read[0]) | (np.abs(u) > KERNEL.ratios_read[1]))
        step = np.rint(np.log2(np.maximum(np.abs(u[poor]), 2.0**-40)) / power.degree)
    if len(poor):
        scale[poor] = 2.0 ** np.clip(step, -20, 20)
        u[poor], off[poor] = yield from ask(x[poor], scale[poor, None] * r[poor], q[poor], v, "repair")
    t = power.root(u)
    if power.side > 0:
        both, _ = yield from ask(x + scale[:, None] * r, scale[:, None] * r, q, v, "signs")
        t = signed(t, u, both)
    return t * scale, off / power.degree


def _column_sizes(
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


LONGEST = 5
"""Derived: tokens of a pair that is asked twice, and the query token."""


def require_length(spec: OracleSpec, least: int) -> None:
    """Three tokens tell a kernel that is positive at 0, `LONGEST` a power of the score."""
    if spec.domain.length_limit < least:
        raise DomainError(
            f"KernelHead needs sequences of {least} tokens here and max_length is {spec.domain.max_length}; a kernel "
            f"that is 0 at 0 takes {LONGEST}, others take 3."
        )


def learn(spec: OracleSpec, rng: np.random.Generator, wanted: str | None) -> Asking[Outcome]:
    """W up to its scale (Frobenius norm 1), v and the power, of normalised weights or of a plain sum."""
    # As long as the domain allows, and the query token as short: scores of order |W|. Powers have no scale.
    length = min(1 / KERNEL.second_token, 0.1 * spec.domain.norm_limit)
    sender, share, allowed = yield from _asked_twice(Sender(spec, length, EPS * length, spec.eps, spec.tolerance), rng)
    if abs(share - 2) <= allowed:
        W, v, power, error = yield from plain_sum(sender, rng)
    elif abs(share - 1) <= allowed:
        W, v, power, error = yield from normalised(sender, rng)
    else:
        raise ModelMismatch(
            f"tokens asked twice are answered {share:.4g} times as large: neither normalised weights (1) nor their "
            "plain sum (2); a sink, a network or a constant stands beside, or the kernel is no power of the score."
        )
    kernel = Kernel(power_name(power.degree, power.side))
    if wanted is not None and kernel.name != wanted:
        raise ModelMismatch(f"the kernel is not {wanted!r}: it is {kernel.name!r}.")
    bound = CORE.stated_over_rounding * error
    if not (np.isfinite(W).all() and np.isfinite(v).all() and bound < 1):
        raise NotIdentifiable(f"at this noise the error of W may be {bound:.2g} of it: nothing is known.")
    head = Head(W, v, kernel, bool(abs(share - 1) <= allowed)).canonical()
    claim = Claim(RELATIVE_ERROR, bound, statement="of W up to its scale, from the rounding of answers")
    return Outcome(head, (_words(head),), allows=Allowance(claim))


def _asked_twice(sender: Sender, rng: np.random.Generator) -> Asking[tuple[Sender, float, float]]:
    """Answer to all tokens twice over that to all once, and the gap that noise may leave."""
    spec = sender.spec
    x, q = sphere(rng, (2, 1, spec.dim))
    X = sender.tokens([x, -KERNEL.folds[0] * x], q)
    once = yield Probes(X, phase="pilot")
    twice = yield Probes(X[:, [0, 0, 1, 1, 2]], phase="pilot")
    size = float(np.abs(once).max())
    if size <= spec.tolerance or not np.isfinite(twice).all():
        raise NotIdentifiable("tokens of every length are answered with 0: v = 0 or W = 0.")
    unit = 4 * math.sqrt(spec.dim) * max(spec.eps, rounding_unit(np.append(once, twice)))
    noise = max(spec.tolerance, decimal_error(np.append(once, twice)))
    allowed = KERNEL.repeated_token_off + 1e3 * (unit + noise / size)
    return replace(sender, unit=unit, noise=noise), float(twice[0] / once[0]), allowed


def _words(head: Head) -> str:
    kind = "normalised" if head.normalised else "a plain sum"
    hidden = "its size cancels" if head.normalised else "its size is in v"
    return f"the kernel is {head.kernel}; weights are {kind}; W is known up to its scale ({hidden}), kept at |W| = 1."
