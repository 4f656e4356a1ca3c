"""What another token in the same place does to heads whose numerators and denominators are known.

y_i = sum_h (N_hi + nu_h) / (D_hi + tau_h) for sequences i that differ elsewhere: tau_h and nu_h are the change of the
token's weight, and of its weight times its value.

The weight itself of tokens in one place, of which changes are known: values are affine in the embeddings.

Tokens t in the place of token a change the denominator by tau_t = T_t - A and the numerator by nu_t = T_t v_t - A v_a.
With v_t - v_a = x_t Phi, x_t the difference of the embeddings: x_t Phi (tau_t + A) + tau_t v_a = nu_t, linear but for
A.

Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import Dense, Descent, descend
from unsoftmax.solvers.score_roots import deepest_dips

_STARTS = 60
"""Random starts: the first one arrived for every token of three models of four heads."""

_HOW = Descent(damping=1e-3, down=5.0, iterations=80, patience=8, arrived=1e-30)
"""Answers are normed, so 1e-30 is rounding."""

FAR = 100.0
"""Logarithms of weights beside all others that no step may reach: exp 100 is past every ratio that float64 resolves."""

_GRID = np.exp(np.linspace(np.log(1e-6), 0.0, 121))
"""Weights A beyond the least possible, beside all weights together: a ratio of 1.12 between neighbours."""

_FROM_GRID = Descent(damping=1e-6, down=10.0, iterations=40, patience=6, arrived=1e-32)
"""One unknown: damping is needed only where the linear part bends."""


@dataclass(frozen=True)
class _Weight:
    """The misfit as a function of log(A - least)."""

    X: Array
    tau: Array
    nu: Array
    least: float

    def solved(self, A: float) -> tuple[Array, Array, Array]:
        """Phi and v_a stacked (d + 1, w), the basis of the columns, what is left (n, w)."""
        M = np.concatenate([self.X * (self.tau + A)[:, None], self.tau[:, None]], axis=1)
        size = np.maximum(np.linalg.norm(M, axis=0), 1e-300)
        Q, R = np.linalg.qr(M / size)
        found = np.linalg.lstsq(R, Q.T @ self.nu, rcond=None)[0] / size[:, None]
        return found, Q, self.nu - Q @ (Q.T @ self.nu)

    def at(self, x: Array) -> Dense:
        if not abs(x[0]) <= FAR:
            return Dense(np.full(1, np.inf), np.zeros((1, 1)))
        grown = float(np.exp(x[0]))
        found, Q, left = self.solved(self.least + grown)
        moved = -(self.X @ found[:-1]) * grown
        return Dense(left.ravel(), (moved - Q @ (Q.T @ moved)).reshape(-1, 1))


@dataclass(frozen=True)
class _Change:
    """Unknowns log(tau_h + low_h); nu is eliminated (variable projection, Kaufman's form)."""

    y: Array
    D: Array
    N: Array
    low: Array

    def solved(self, tau: Array) -> tuple[Array, Array, Array, Array]:
        """Coefficients (m, H), their orthonormal basis, nu (H, d) and what is left (m, d)."""
        g = 1 / (self.D + tau)
        right = self.y - np.einsum("ih,ihd->id", g, self.N)
        Q, R = np.linalg.qr(g)
        nu = np.linalg.lstsq(R, Q.T @ right, rcond=None)[0]
        return g, Q, nu, right - Q @ (Q.T @ right)

    def at(self, x: Array) -> Dense:
        if np.abs(x).max() > FAR:
            return Dense(np.full(1, np.inf), np.zeros((1, len(x))))
        tau = np.exp(x) - self.low
        g, Q, nu, left = self.solved(tau)
        moved = (g**2)[:, :, None] * (self.N + nu) * np.exp(x)[:, None]
        moved = moved - np.einsum("ij,jhd->ihd", Q @ Q.T, moved)
        return Dense(left.ravel(), moved.transpose(0, 2, 1).reshape(left.size, len(x)))


def replaced(y: Array, D: Array, N: Array, close: float, rng: np.random.Generator) -> tuple[Array, Array] | None:
    """tau (H,) and nu (H, d) from answers y (m, d), m > H, at D (m, H) and N (m, H, d).

    None if no start leaves a share below `close` of the answers.
    """
    size = float(np.linalg.norm(y)) or 1.0
    change = _Change(y / size, D, N / size, 0.9999 * D.min(axis=0))
    for start in range(_STARTS):
        x = np.log(change.low) + (0.3 + 0.2 * (start % 4)) * rng.standard_normal(D.shape[1])
        found = descend(change, x, _HOW)
        if found.cost <= close**2:
            tau = np.exp(found.x) - change.low
            return tau, change.solved(tau)[2] * size
    return None


def replaced_alone(y: Array, D: Array, N: Array) -> tuple[Array, Array]:
    """tau (n,) and nu (n, w) of one head whose part of the answers y (n, 2, w) is seen alone, at D (2,) and N (2, w).

    y_i D_i - N_i = nu - tau y_i is linear.
    """
    left = y * D[:, None] - N
    across, along = left[:, 0] - left[:, 1], y[:, 0] - y[:, 1]
    tau = -(across * along).sum(axis=1) / np.maximum((along * along).sum(axis=1), 1e-300)
    return tau, (left + tau[:, None, None] * y).mean(axis=1)


def first_weight(X: Array, tau: Array, nu: Array) -> tuple[float, Array, Array]:
    """A, Phi (d, w) and v_a (w,) from X (n, d), tau (n,) and nu (n, w), n > d + 1; weights are parts of 1."""
    problem = _Weight(X, tau, nu / max(float(np.linalg.norm(nu)), 1e-300), max(0.0, -float(tau.min())))
    cost = np.array([np.linalg.norm(problem.solved(problem.least + A)[2]) for A in _GRID])
    ends = [descend(problem, np.log(_GRID[[i]]), _FROM_GRID) for i in deepest_dips(cost)]
    A = problem.least + float(np.exp(min(ends, key=lambda end: end.cost).x[0]))
    found = _Weight(X, tau, nu, problem.least).solved(A)[0]
    return A, found[:-1], found[-1]
