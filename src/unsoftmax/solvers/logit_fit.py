"""Heads at one displacement, fitted from a neighbour: Y_i = sum_h sigma(theta_h . f_i - log k_i) r_h.

r is linear and eliminated (variable projection with Kaufman's Jacobian), theta by Levenberg-Marquardt.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", star.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.special import expit

from unsoftmax.probes.base import Array
from unsoftmax.solvers.chord import NEAR, Descent, settle

_DESCENT = Descent(1e-8, factor=10.0, least=1e-15, tries=8, steps=30, near=0.0, arrived=0.3, stalled=1e-3)
"""Neighbours are near, so hardly any damping at first, and eight tries reach 0.1, where a step is a descent by small
parts; five to ten steps converge."""

_APPROACH = 0.5
"""Share of the misfit that a step head by head must take away to be followed by another one."""

_TRIMS = 3
"""Rounds in which spoiled answers are left out: each shows smaller ones."""

OUTLYING = 5.0
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
    how = replace(_DESCENT, near=NEAR * size)
    problem = _Logits(theta.shape, F, log_k, Y)
    found = settle(problem, problem.approached(theta.ravel()), how)
    theta = found.x.reshape(theta.shape)
    return LogitFit(theta, _projected(theta, F, log_k, Y)[1].T, found.cost / size)


def fit_smooth(theta: Array, F: Array, log_k: Array, Y: Array, clear: float) -> LogitFit:
    """The same without the few answers that a kink (of a ReLU beside the heads) spoils; `clear` is an absolute misfit
    per number that is none. The misfit is that of the answers kept."""
    fit = fit_logits(theta, F, log_k, Y)
    kept = np.ones(len(F), bool)
    most = max(0, len(F) - F.shape[1] - len(theta) - 1)
    for _ in range(_TRIMS):
        S = expit(F @ fit.theta.T - log_k[:, None])
        rest = np.sqrt(np.mean((Y - S @ fit.R.T) ** 2, axis=1))
        good = rest <= max(clear, OUTLYING * float(np.median(rest)))
        if np.array_equal(good, kept) or (~good).sum() > most:
            break
        kept = good
        fit = fit_logits(fit.theta, F[kept], log_k[kept], Y[kept])
    return fit


def _projected(theta: Array, F: Array, log_k: Array, Y: Array) -> tuple[Array, Array, Array]:
    # A step too long may saturate everything; its misfit is then large, or infinite, and it is taken back.
    with np.errstate(all="ignore"):
        S = expit(F @ theta.T - log_k[:, None])
        if not np.isfinite(S).all():
            return S, np.zeros((S.shape[1], Y.shape[1])), np.full(Y.shape, np.inf)
        R = np.linalg.lstsq(S, Y, rcond=None)[0]
        return S, R, np.clip(Y - S @ R, -1e100, 1e100)


@dataclass(frozen=True, eq=False)
class _Logits:
    """The fit as a problem in theta alone, residues projected out."""

    shape: tuple[int, ...]
    F: Array
    log_k: Array
    Y: Array

    def _at(self, x: Array) -> tuple[Array, Array, Array]:
        return _projected(x.reshape(self.shape), self.F, self.log_k, self.Y)

    def cost(self, x: Array) -> float:
        cost = float(np.linalg.norm(self._at(x)[2]))
        return cost if np.isfinite(cost) else np.inf

    def normal(self, x: Array) -> tuple[Array, Array]:
        S, R, rest = self._at(x)
        Q, features = np.linalg.qr(S)[0], self.shape[1]
        moved = ((S * (1 - S))[:, :, None] * self.F[:, None, :]).reshape(len(S), -1)
        moved -= Q @ (Q.T @ moved)
        G = dsyrk(1.0, moved.T, lower=1) * np.kron(R @ R.T, np.ones((features, features)))
        return G, self._gradient(S, R, rest)

    def approached(self, x: Array) -> Array:
        """Nearer to the solution by steps that take heads one by one: misfits are read in coordinates in which today's
        residues are unit vectors, where J'J falls into blocks."""
        cost, gain = self.cost(x), 1.0
        while gain >= _APPROACH:
            S, R, rest = self._at(x)
            Q, own = np.linalg.qr(S)[0], np.linalg.lstsq(R.T, rest.T, rcond=None)[0]
            moved = (S * (1 - S)).T[:, :, None] * self.F
            moved -= Q @ (Q.T @ moved)
            moved, length = moved / (scale := np.linalg.norm(moved, axis=1, keepdims=True) + 1e-300), scale[:, 0]
            G = moved.transpose(0, 2, 1) @ moved + _DESCENT.damping * np.eye(self.shape[1])
            step = np.linalg.solve(G, np.einsum("hmf,hm->hf", moved, own)[:, :, None])[:, :, 0] / length
            new = self.cost(trial := x + step.ravel())
            gain = 1 - new / max(cost, 1e-300)
            x, cost = (trial, new) if new < cost else (x, cost)
        return x

    def gradient(self, x: Array) -> Array:
        return self._gradient(*self._at(x))

    def _gradient(self, S: Array, R: Array, rest: Array) -> Array:
        """What is left is across all columns of S: what moves along them need not be projected out."""
        return np.asarray((S * (1 - S) * (rest @ R.T)).T @ self.F).ravel()
