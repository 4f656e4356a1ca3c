"""Heads at one displacement, fitted from a neighbour: Y_i = sum_h sigma(theta_h . f_i - log k_i) r_h.

r is linear and eliminated (variable projection with Kaufman's Jacobian), theta by Levenberg-Marquardt.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", star.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from unsoftmax.probes.base import Array

_STEPS = 30
"""Steps of Levenberg-Marquardt: quadratic convergence from a neighbour takes five to ten."""

_STALLED = 1e-3
"""Relative gain of a step below which the fit has arrived, or is stuck."""

_TRIMS = 3
"""Rounds in which spoiled answers are left out: each shows smaller ones."""

_OUTLYING = 5.0
"""Misfit of an answer over the median one beyond which it is spoiled: Gaussian errors in eight numbers never are."""


@dataclass(frozen=True, eq=False)
class LogitFit:
    """theta (n, features), R (d, n) and the misfit relative to the answers."""

    theta: Array
    R: Array
    residual: float


def fit_logits(theta: Array, F: Array, log_k: Array, Y: Array) -> LogitFit:
    """From theta (n, features): F (m, features), log_k (m,), answers Y (m, d)."""
    size = max(float(np.linalg.norm(Y)), 1e-300)
    S, R, rest = _projected(theta, F, log_k, Y)
    cost, damping = float(np.linalg.norm(rest)), 1e-8
    for _ in range(_STEPS):
        G, b = _normal(S, R, rest, F)
        scale = np.sqrt(np.diag(G)) + 1e-300
        for _ in range(8):
            A = G / scale[:, None] / scale
            A[np.diag_indices_from(A)] += damping
            trial = theta + (_solve(A, b / scale) / scale).reshape(theta.shape)
            S2, R2, rest2 = _projected(trial, F, log_k, Y)
            new = float(np.linalg.norm(rest2))
            if np.isfinite(new) and new < cost:
                break
            damping *= 10
        else:
            break
        damping = max(damping / 10, 1e-15)
        gain = 1 - new / cost
        theta, S, R, rest, cost = trial, S2, R2, rest2, new
        if gain < _STALLED:
            break
    return LogitFit(theta, R.T, cost / size)


def fit_smooth(theta: Array, F: Array, log_k: Array, Y: Array, clear: float) -> LogitFit:
    """The same without the few answers that a kink (of a ReLU beside the heads) spoils; `clear` is an absolute misfit
    per number that is none. The misfit is that of the answers kept."""
    fit = fit_logits(theta, F, log_k, Y)
    kept = np.ones(len(F), bool)
    most = max(0, len(F) - F.shape[1] - len(theta) - 1)
    for _ in range(_TRIMS):
        S = expit(F @ fit.theta.T - log_k[:, None])
        rest = np.sqrt(np.mean((Y - S @ fit.R.T) ** 2, axis=1))
        good = rest <= max(clear, _OUTLYING * float(np.median(rest)))
        if np.array_equal(good, kept) or (~good).sum() > most:
            break
        kept = good
        fit = fit_logits(fit.theta, F[kept], log_k[kept], Y[kept])
    return fit


def _solve(A: Array, b: Array) -> Array:
    """A is positive definite but for rounding, and singular where two heads attend alike."""
    try:
        return np.asarray(cho_solve(cho_factor(A, check_finite=False), b))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(A, b, rcond=None)[0])


def _projected(theta: Array, F: Array, log_k: Array, Y: Array) -> tuple[Array, Array, Array]:
    # A step too long may saturate everything; its misfit is then large or no number, and it is taken back.
    with np.errstate(all="ignore"):
        S = expit(F @ theta.T - log_k[:, None])
        R = np.linalg.lstsq(S, Y, rcond=None)[0]
        return S, R, np.clip(Y - S @ R, -1e100, 1e100)


def _normal(S: Array, R: Array, rest: Array, F: Array) -> tuple[Array, Array]:
    """Normal matrix and right-hand side for theta, the residues projected out."""
    n, features = S.shape[1], F.shape[1]
    Q = np.linalg.qr(S)[0]
    moved = ((S * (1 - S))[:, :, None] * F[:, None, :]).reshape(len(S), -1)
    moved -= Q @ (Q.T @ moved)
    G = (moved.T @ moved) * np.kron(R @ R.T, np.ones((features, features)))
    b = np.einsum("ihf,ih->hf", moved.reshape(-1, n, features), rest @ R.T).ravel()
    return G, b
