"""Fit y = sum_h (z.v_h) sigma(z.w_h - s): heads seen from one query token, s = log of the repetition ratio.

v is linear and eliminated (variable projection, Kaufman's Jacobian); w by Levenberg-Marquardt from random starts.

Theory: docs/theory/multi-head.md, "Generic heads", bounded tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import Dense, Descent, descend

_FROM_AFAR = Descent(damping=1e-2, down=6.0, iterations=150, patience=12, tries=8, gain=0.99)
"""From random w: a start that gains less than a hundredth in a dozen steps is given up."""

SMALL = 0.05
"""Typical |z.w| below which it is small, a tenth of the least of random w: no head is near saturation, and squares of
it, which tell heads apart, are below a hundredth of what heads share."""

_PATIENT = Descent(damping=1e-2, down=6.0, iterations=6000, patience=100, tries=14, gain=0.999)
"""From random w where |z.w| is small: what tells heads apart is second order in it, so paths run along a narrow valley.
Of 30 such paths for two heads, |z.w| from 8e-4 to 3e-5, 9 arrived in 1,500 steps that end by a thousandth in 25, 15 in
these, and one as long as paths for larger scores."""

_ALONG = Descent(damping=1e-3, down=6.0, iterations=60, patience=3, tries=8, gain=0.97)
"""Along one coordinate: the others are known, and most starts arrive in a few steps."""

_ARRIVED = 1e-20
"""Relative cost at which the fit is at rounding."""


@dataclass(frozen=True, eq=False)
class Units:
    """w, v (H, d), the root mean square of what they leave unexplained, and the steps of all descents to them."""

    w: Array
    v: Array
    rms: float
    steps: int = 0


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
    logit: float = 1.0,
    patience: float = np.inf,
) -> Units:
    """Best fit over random starts, the first within `tolerance` (rms) wins. z (n, d), shift (n,), y (n,).

    `logit`: typical |z.w|; where it is small, starts are drawn around it and followed further, until
    `patience` steps were taken.
    """
    size = logit if logit < SMALL else 1.0
    d = z.shape[1]
    typical = float(np.linalg.norm(z, axis=1).mean())
    best, taken = Units(np.zeros((heads, d)), np.zeros((heads, d)), np.inf), 0
    for start in range(starts):
        if start == 0 and first is not None:
            w = first.copy()
        else:
            w = rng.standard_normal((heads, d)) * (size * 10 ** rng.uniform(-0.3, 0.8) / typical)
        how = _PATIENT if logit < SMALL and taken < patience else _FROM_AFAR
        found = _Eliminated(z, shift, y).descended(w, tolerance, how)
        taken += found.steps
        if found.rms < best.rms:
            best = found
        if best.rms <= tolerance:
            break
    return replace(best, steps=taken)


def extend_units(
    z: Array, further: Array, shift: Array, y: Array, units: Units, rng: np.random.Generator, starts: int = 20
) -> tuple[Array, Array]:
    """One more coordinate of every w and v, (H,) each, from z (n, p) where units are known and `further` (n,)."""
    H = len(units.v)
    T, V = z @ units.w.T - shift[:, None], z @ units.v.T
    typical = float(np.abs(units.w).mean())
    order = np.argsort(np.abs(further), kind="stable")
    best, cost = np.zeros((2, H)), np.inf
    for start in range(starts):
        found = rng.standard_normal((2, H)) * (typical if start else 0.0)
        # Small steps along the new coordinate are nearly linear in it: from there to the long ones.
        for share in (0.4, 0.7, 1.0):
            rows = order[: max(2 * H, round(share * len(y)))]
            found, left = _Coordinate(T[rows], V[rows], further[rows], y[rows]).descended(found[0])
        if left < cost:
            best, cost = found, left
        if cost <= _ARRIVED * float(y @ y):
            break
    return best[0], best[1]


@dataclass(frozen=True, eq=False)
class _Coordinate:
    """Further coordinates of w and v (2 H,), where the others give logits T (n, H) and values V (n, H)."""

    T: Array
    V: Array
    further: Array
    y: Array

    def at(self, x: Array) -> Dense:
        H, along = self.T.shape[1], self.further[:, None]
        S, values = expit(self.T + along * x[:H]), self.V + along * x[H:]
        return Dense((values * S).sum(axis=1) - self.y, np.hstack([values * S * (1 - S), S]) * along)

    def descended(self, a: Array) -> tuple[Array, float]:
        """(w, v) coordinates (2, H) and the squared residual, from w = a and the best v for it."""
        S = expit(self.T + self.further[:, None] * a)
        c = np.linalg.lstsq(S * self.further[:, None], self.y - (self.V * S).sum(axis=1), rcond=None)[0]
        end = descend(self, np.concatenate([a, c]), _ALONG)
        return end.x.reshape(2, -1), end.cost


def _project(z: Array, shift: Array, y: Array, w: Array) -> tuple[Array, Array, Array, Array]:
    """Shares (n, H), orthonormal basis of what v can explain, v (H, d), residual (n,)."""
    n, d = z.shape
    S = expit(z @ w.T - shift[:, None])
    Q, R = np.linalg.qr((S[:, :, None] * z[:, None, :]).reshape(n, -1))
    c = np.linalg.lstsq(R, Q.T @ y, rcond=1e-13)[0]
    residual = y - (S[:, :, None] * z[:, None, :]).reshape(n, -1) @ c
    return S, Q, c.reshape(-1, d), residual


@dataclass(frozen=True, eq=False)
class _Eliminated:
    """w (H d,) alone is unknown: v is the best for it, and what v explains is taken out of the Jacobian."""

    z: Array
    shift: Array
    y: Array

    def at(self, x: Array) -> Dense:
        n, d = self.z.shape
        S, Q, v, r = _project(self.z, self.shift, self.y, x.reshape(-1, d))
        J = (((self.z @ v.T) * S * (1 - S))[:, :, None] * self.z[:, None, :]).reshape(n, -1)
        return Dense(-r, J - Q @ (Q.T @ J))

    def descended(self, w: Array, tolerance: float, how: Descent) -> Units:
        """Units after a descent from w (H, d)."""
        n, d = self.z.shape
        end = descend(self, w.ravel(), replace(how, arrived=n * (0.3 * tolerance) ** 2))
        found = end.x.reshape(-1, d)
        return Units(found, _project(self.z, self.shift, self.y, found)[2], float(np.sqrt(end.cost / n)), end.steps)
