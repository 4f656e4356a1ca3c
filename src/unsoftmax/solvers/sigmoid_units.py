"""Fit y = sum_h (z.v_h) sigma(z.w_h - s): heads seen from one query token, s = log of the repetition ratio.

v is linear and eliminated (variable projection, Kaufman's Jacobian); w by Levenberg-Marquardt from random starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from unsoftmax.probes.base import Array

_PATIENCE = 12
"""Steps of Levenberg-Marquardt without progress before a start is given up."""

_ARRIVED = 1e-20
"""Relative cost at which the fit is at rounding."""


@dataclass(frozen=True, eq=False)
class Units:
    """w, v (H, d) and the root mean square of what they leave unexplained."""

    w: Array
    v: Array
    rms: float


def fit_units(
    z: Array,
    shift: Array,
    y: Array,
    heads: int,
    tolerance: float,
    rng: np.random.Generator,
    *,
    starts: int = 30,
    first: Array | None = None,
) -> Units:
    """Best fit over random starts, the first within `tolerance` (rms) wins. z (n, d), shift (n,), y (n,)."""
    d = z.shape[1]
    typical = float(np.linalg.norm(z, axis=1).mean())
    best = Units(np.zeros((heads, d)), np.zeros((heads, d)), np.inf)
    for start in range(starts):
        if start == 0 and first is not None:
            w = first.copy()
        else:
            w = rng.standard_normal((heads, d)) * (10 ** rng.uniform(-0.3, 0.8) / typical)
        found = _descend(z, shift, y, w, tolerance)
        if found.rms < best.rms:
            best = found
        if best.rms <= tolerance:
            break
    return best


def extend_units(
    z: Array, further: Array, shift: Array, y: Array, units: Units, rng: np.random.Generator, starts: int = 20
) -> tuple[Array, Array]:
    """One more coordinate of every w and v, (H,) each, from z (n, p) where units are known and `further` (n,)."""
    H = len(units.v)
    T, V = z @ units.w.T - shift[:, None], z @ units.v.T
    typical = float(np.abs(units.w).mean())
    order = np.argsort(np.abs(further))
    best, cost = np.zeros((2, H)), np.inf
    for start in range(starts):
        found = rng.standard_normal((2, H)) * (typical if start else 0.0)
        # Small steps along the new coordinate are nearly linear in it: from there to the long ones.
        for share in (0.4, 0.7, 1.0):
            rows = order[: max(2 * H, round(share * len(y)))]
            found, left = _descend_coordinate(T[rows], V[rows], further[rows], y[rows], found[0])
        if left < cost:
            best, cost = found, left
        if cost <= _ARRIVED * float(y @ y):
            break
    return best[0], best[1]


def _descend_coordinate(T: Array, V: Array, further: Array, y: Array, a: Array) -> tuple[Array, float]:
    """(w, v) coordinates (2, H) and the squared residual, by Levenberg-Marquardt from w = a."""
    H = len(a)
    S = expit(T + further[:, None] * a)
    c = np.linalg.lstsq(S * further[:, None], y - (V * S).sum(axis=1), rcond=None)[0]
    x, damping = np.concatenate([a, c]), 1e-3
    r = y - ((V + further[:, None] * c) * S).sum(axis=1)
    for _ in range(60):
        values = V + further[:, None] * x[H:]
        J = np.hstack([values * S * (1 - S), S]) * further[:, None]
        normal, gradient = J.T @ J, J.T @ r
        for _ in range(8):
            step = np.linalg.lstsq(normal + damping * np.diag(np.diag(normal) + 1e-300), gradient, rcond=None)[0]
            trial = x + step
            S_new = expit(T + further[:, None] * trial[:H])
            r_new = y - ((V + further[:, None] * trial[H:]) * S_new).sum(axis=1)
            if r_new @ r_new < r @ r:
                break
            damping *= 4
        else:
            break
        small = r_new @ r_new > 0.99 * (r @ r) and damping < 1e-6
        x, S, r, damping = trial, S_new, r_new, damping / 6
        if small:
            break
    return x.reshape(2, H), float(r @ r)


def _project(z: Array, shift: Array, y: Array, w: Array) -> tuple[Array, Array, Array, Array]:
    """Shares (n, H), orthonormal basis of what v can explain, v (H, d), residual (n,)."""
    n, d = z.shape
    S = expit(z @ w.T - shift[:, None])
    Q, R = np.linalg.qr((S[:, :, None] * z[:, None, :]).reshape(n, -1))
    c = np.linalg.lstsq(R, Q.T @ y, rcond=1e-13)[0]
    residual = y - (S[:, :, None] * z[:, None, :]).reshape(n, -1) @ c
    return S, Q, c.reshape(-1, d), residual


def _descend(z: Array, shift: Array, y: Array, w: Array, tolerance: float, iterations: int = 150) -> Units:
    n, d = z.shape
    S, Q, v, r = _project(z, shift, y, w)
    cost, damping, idle = float(r @ r), 1e-2, 0
    for _ in range(iterations):
        J = (((z @ v.T) * S * (1 - S))[:, :, None] * z[:, None, :]).reshape(n, -1)
        J = J - Q @ (Q.T @ J)
        normal, gradient = J.T @ J, J.T @ r
        diagonal = np.diag(normal) + 1e-12 * normal.max() + 1e-300
        for _ in range(8):
            try:
                step = np.linalg.solve(normal + damping * np.diag(diagonal), gradient).reshape(-1, d)
            except np.linalg.LinAlgError:
                damping *= 10
                continue
            trial = _project(z, shift, y, w + step)
            new = float(trial[3] @ trial[3])
            if new < cost:
                break
            damping *= 4
        else:
            break
        gained, cost, w, damping = (cost - new) / cost, new, w + step, max(damping / 6, 1e-14)
        S, Q, v, r = trial
        if np.sqrt(cost / n) < 0.3 * tolerance:
            break
        idle = idle + 1 if gained < 1e-3 else 0
        if idle > _PATIENCE:
            break
    return Units(w, v, float(np.sqrt(cost / n)))
