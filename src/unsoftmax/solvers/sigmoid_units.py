"""Fit y = sum_h (z.v_h) sigma(z.w_h - s): heads seen from one query token, s = log of the repetition ratio.

v is linear and eliminated (variable projection, Kaufman's Jacobian); w by Levenberg-Marquardt from random starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from unsoftmax.probes.base import Array

_PATIENCE = 12


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
