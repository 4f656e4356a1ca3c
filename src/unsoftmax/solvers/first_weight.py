"""The weight itself of tokens in one place, of which changes are known: values are affine in the embeddings.

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
from unsoftmax.solvers.replaced_token import FAR

_GRID = np.exp(np.linspace(np.log(1e-6), 0.0, 121))
"""Weights A beyond the least possible, beside all weights together: a ratio of 1.12 between neighbours."""

_DIPS = 4
"""Lowest local minima over the grid that are followed."""

_HOW = Descent(damping=1e-6, down=10.0, iterations=40, patience=6, arrived=1e-32)
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


def first_weight(X: Array, tau: Array, nu: Array) -> tuple[float, Array, Array]:
    """A, Phi (d, w) and v_a (w,) from X (n, d), tau (n,) and nu (n, w), n > d + 1; weights are parts of 1."""
    problem = _Weight(X, tau, nu / max(float(np.linalg.norm(nu)), 1e-300), max(0.0, -float(tau.min())))
    cost = np.array([np.linalg.norm(problem.solved(problem.least + A)[2]) for A in _GRID])
    around = np.concatenate([[np.inf], cost, [np.inf]])
    dips = np.flatnonzero((cost <= around[:-2]) & (cost <= around[2:]))
    dips = dips[np.argsort(cost[dips], kind="stable")][:_DIPS]
    ends = [descend(problem, np.log(_GRID[[i]]), _HOW) for i in dips]
    A = problem.least + float(np.exp(min(ends, key=lambda end: end.cost).x[0]))
    found = _Weight(X, tau, nu, problem.least).solved(A)[0]
    return A, found[:-1], found[-1]
