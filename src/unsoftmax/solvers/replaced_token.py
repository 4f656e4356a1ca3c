"""What another token in the same place does to heads whose numerators and denominators are known.

y_i = sum_h (N_hi + nu_h) / (D_hi + tau_h) for sequences i that differ elsewhere: tau_h and nu_h are the change of the
token's weight, and of its weight times its value.

Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import Dense, Descent, descend

_STARTS = 60
"""Random starts: the first one arrived for every token of three models of four heads."""

_HOW = Descent(damping=1e-3, down=5.0, iterations=80, patience=8, arrived=1e-30)
"""Answers are normed, so 1e-30 is rounding."""

FAR = 100.0
"""Logarithms of weights beside all others that no step may reach: exp 100 is past every ratio that float64 resolves."""


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
