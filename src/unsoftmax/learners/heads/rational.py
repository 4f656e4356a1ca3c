"""Heads by rational interpolation in the repetition ratio, the way of arXiv 2608.03294, for few heads.

Every pair (z, b) at 2H ratios shows all z'W_h b and z.v_h at once. The values z.v_h do not depend on b, which tells the
heads apart along b; sums z_1 + z_l tell them apart along z: 2H (d^2 + d - 1) queries after the one-token ones.

Theory: docs/theory/multi-head.md, "Generic heads", where it stops.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.readable import INVISIBLE, SATURATED, Steps, find_scale
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.constants_fits import FITS
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.learners.heads.records import Records
from unsoftmax.probes.base import Array
from unsoftmax.solvers.heads_fit import gauss_newton, levenberg
from unsoftmax.solvers.rational import Poles, poles, ratios, shortest

_COUNTING = 2 * HEADS.rational_heads + 3
"""Ratios at which heads are counted: some more than their unknowns."""


def tokens_needed(heads: int | None) -> int:
    """Length of sequences without which the ratios do not suffice."""
    return shortest(_COUNTING if heads is None else 2 * max(heads, 1))


def rational_heads(
    ground: Ground, heads: int | None, records: Records, longest: int, rng: np.random.Generator
) -> Asking[tuple[Array, Array]]:
    """W (H, d, d), v (H, d); H is tried from 1 up if not given."""
    d = ground.dim
    size = yield from _size(ground, records, rng)
    Z, B = (np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2))
    Z = Z * size
    H = heads if heads is not None else (yield from _count(ground, records, size, longest, rng))
    if H == 0:
        return np.zeros((0, d, d)), np.zeros((0, d))
    copies = ratios(2 * H, min(longest, 4 * H + 3))
    z = np.vstack([np.repeat(Z, d, axis=0), Z[0] + Z[1:]])
    b = np.vstack([np.tile(B, (d, 1)), np.repeat(B[:1], d - 1, axis=0)])
    found = yield from _separate(ground, records, z, b, copies, H, "main")
    t, q = _sorted_along_b([found[i * d : (i + 1) * d] for i in range(d)])
    order = [np.arange(H)] + [_link(t[0, 0], q[0], t[i, 0], q[i], found[d * d + i - 1]) for i in range(1, d)]
    t, q = np.array([t[i][:, order[i]] for i in range(d)]), np.array([q[i][order[i]] for i in range(d)])
    v = np.linalg.solve(Z, q).T
    W = np.array([np.linalg.solve(B, np.linalg.solve(Z, t[:, :, h]).T).T for h in range(H)])
    if W.size <= FITS.largest_fit:
        # Nearly equal poles spoil single pairs; all answers at once do not.
        data = records.data()
        W, v, _ = levenberg(W, v, data, 1e-12 * size * float(np.abs(q).max()))
        W, v = gauss_newton(W, v, data, 0.6 * ground.spec.tolerance, 3)
    # Scores within rounding of 0 are those of a head with W = 0; verification asks it far out.
    flat = np.linalg.norm(W, axis=(1, 2)) * size <= max(HEADS.rational_flat, 1e3 * ground.noise)
    return np.where(flat[:, None, None], 0.0, W), v


def _size(ground: Ground, records: Records, rng: np.random.Generator) -> Asking[float]:
    """Length of z, for unit b, at which attention moves the answer by about half its size."""
    d, flat = ground.dim, False

    def look(size: float) -> Asking[float]:
        nonlocal flat
        z, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.standard_normal((2, 8, d)))
        F = yield from records.watching(ground.pairs(z * size, b, phase="pilot"))
        even = 2 * F / size - z @ ground.V
        F2 = yield from records.watching(ground.pairs(z * size / 4, b, phase="pilot"))
        ratio = float(np.linalg.norm(even)) / max(float(np.linalg.norm(8 * F2 / size - z @ ground.V)), 1e-300)
        flat = not np.linalg.norm(even) > 1e-12
        # Proportional to z (ratio 4) while scores are small, constant (ratio 1) when saturated.
        return 1.0 if flat else SATURATED if ratio < 2.0 else INVISIBLE if ratio > 3.6 else 1.0

    found = yield from find_scale(look, 1.0, Steps(shorter=1 / 4, longer=3.0))
    if found.size == SATURATED:
        raise ModelMismatch("no length of the tokens makes attention readable.")
    return 1.0 if flat else found.scale


def _count(ground: Ground, records: Records, size: float, longest: int, rng: np.random.Generator) -> Asking[int]:
    """The smallest H whose poles explain more ratios than they have unknowns, at several pairs."""
    z, b = (
        x / np.linalg.norm(x, axis=1, keepdims=True)
        for x in rng.standard_normal((2, HEADS.rational_trials, ground.dim))
    )
    copies = ratios(_COUNTING, min(longest, 64))
    F = yield from _answers(ground, records, z * size, b, copies, "pilot")
    if np.abs(F).max() == 0:
        return 0
    k = copies[:, 1] / copies[:, 0]
    for H in range(1, HEADS.rational_heads + 1):
        fits = [poles(k, f, H) for f in F]
        if (
            sum(fit is not None and fit.gap <= max(HEADS.explained, 1e3 * ground.noise) for fit in fits)
            >= HEADS.rational_trials - 1
        ):
            return H
    raise ModelMismatch(
        f"up to {HEADS.rational_heads} poles do not explain the dependence on the number of copies; there are more "
        "heads than "
        'rational interpolation can separate in this precision, or none at all. Use method="saturation".'
    )


def _answers(ground: Ground, records: Records, z: Array, b: Array, copies: Array, phase: str) -> Asking[Array]:
    """F (pairs, ratios)."""
    n, m = len(z), len(copies)
    asked = ground.pairs(np.repeat(z, m, axis=0), np.repeat(b, m, axis=0), np.tile(copies, (n, 1)), phase=phase)
    F = yield from records.watching(asked)
    return F.reshape(n, m)


def _separate(
    ground: Ground, records: Records, z: Array, b: Array, copies: Array, H: int, phase: str
) -> Asking[list[Poles]]:
    """Poles of every pair."""
    F = yield from _answers(ground, records, z, b, copies, phase)
    k = copies[:, 1] / copies[:, 0]
    found = [poles(k, f, H) for f in F]
    lost = sum(p is None or not p.gap < 1e-2 for p in found)
    if lost > len(found) // 10 or any(p is None for p in found):
        raise ModelMismatch(
            f"{lost} of {len(found)} pairs have no {H} real poles: their heads score too alike for rational "
            'interpolation in this precision. Use method="saturation".'
        )
    return [p for p in found if p is not None]


def _sorted_along_b(rows: list[list[Poles]]) -> tuple[Array, Array]:
    """t (d, d, H) and q (d, H): within one z the heads keep their q whatever b is."""
    from scipy.optimize import linear_sum_assignment  # a slow import, seldom needed

    t, q = [], []
    for row in rows:
        reference = row[0].q
        scores = []
        for p in row:
            _, match = linear_sum_assignment(np.abs(reference[:, None] - p.q[None, :]))
            scores.append(p.t[match])
        t.append(scores)
        q.append(reference)
    return np.array(t), np.array(q)


def _link(t0: Array, q0: Array, t1: Array, q1: Array, both: Poles) -> Array:
    """Order of the heads at z_l that makes z_1 + z_l add up: (t, q) of the sum are sums."""
    from scipy.optimize import linear_sum_assignment  # a slow import, seldom needed

    H = len(t0)
    t_sum, q_sum = t0[:, None] + t1[None, :], q0[:, None] + q1[None, :]
    size = max(float(np.abs(both.q).max()), 1e-300)
    miss = np.abs(t_sum[:, :, None] - both.t) + np.abs(q_sum[:, :, None] - both.q) / size
    rows, columns = linear_sum_assignment(miss.min(axis=2))
    order = np.empty(H, dtype=np.int64)
    order[rows] = columns
    return order
