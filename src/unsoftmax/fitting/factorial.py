"""Starts for several heads: every answer as a sum of one token's value per head, plus noise that falls.

Mean-field EM: the picks of one head given the mean values of the others (E), values by least squares and scores by a
few L-BFGS steps on the cross entropy of the picks (M), while the noise s falls.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unsoftmax.fitting.blocks import Blocks, attend
from unsoftmax.fitting.shape import Shape
from unsoftmax.probes.base import Array

LEVELS = (1.0, 0.5, 0.25, 0.12)
"""Noise of the levels, relative to the root mean square of the answers; each is a start of its own."""

_ROUNDS = 6
"""EM rounds per level: picks settle within five."""

_SWEEPS = 3
"""Passes over the heads per E step: each sees the others' new picks."""


def levels(blocks: Blocks, shape: Shape, W: Array, ridge: float, rng: np.random.Generator) -> Iterator[Array]:
    """Unknowns after every level from scores W (H, d, d)."""
    from scipy.optimize import minimize  # a slow import, seldom needed

    picks = _Picks(blocks, shape, W)
    unit = float(np.sqrt((blocks.y**2).mean())) or 1.0
    for level in LEVELS:
        for _ in range(_ROUNDS):
            picks.choose(level * unit, rng)
            picks.values()
            picks.W = minimize(
                picks.cross_entropy, picks.W.ravel(), args=(ridge,), jac=True, method="L-BFGS-B", options={"maxiter": 6}
            ).x.reshape(W.shape)
        yield shape.joined(picks.W, picks.P)


class _Picks:
    """State of the EM: scores W (H, d, d), values P (H, m, d), and picks rho, one (H, b, N) array per block."""

    def __init__(self, blocks: Blocks, shape: Shape, W: Array) -> None:
        self.blocks, self.shape, self.W = blocks, shape, W
        self.rho = [np.exp(log) for log in self._logs(W)]
        self.P: Array = np.zeros((shape.heads, shape.outputs, shape.dim))
        self.values()

    def _logs(self, W: Array) -> list[Array]:
        u = [self.blocks.q @ Wh.T for Wh in W]
        return [np.stack([attend(block, each[block.rows])[0] for each in u]) for block in self.blocks]

    def choose(self, s: float, rng: np.random.Generator) -> None:
        """E step: each head's picks given what the others contribute on average."""
        H = self.shape.heads
        for block, log, rho in zip(self.blocks, self._logs(self.W), self.rho, strict=True):
            values = np.stack([block.tokens @ P.T for P in self.P])
            means = np.einsum("hbn,hbnm->hbm", rho, values)
            for h in np.concatenate([rng.permutation(H) for _ in range(_SWEEPS)]):
                wanted = self.blocks.y[block.rows] - means.sum(axis=0) + means[h]
                joint = log[h] - ((wanted[:, None] - values[h]) ** 2).sum(axis=2) / (2 * s * s)
                share = np.exp(joint - joint.max(axis=1, keepdims=True))
                rho[h] = share / share.sum(axis=1, keepdims=True)
                means[h] = np.einsum("bn,bnm->bm", rho[h], values[h])

    def values(self) -> None:
        """M step for P: least squares on the expected picks, their spread included."""
        H, d = self.shape.heads, self.shape.dim
        A, b = np.zeros((H * d, H * d)), np.zeros((H * d, self.shape.outputs))
        for block, rho in zip(self.blocks, self.rho, strict=True):
            Z = np.concatenate([np.matmul(r[:, None], block.tokens)[:, 0] for r in rho], axis=1)
            A += Z.T @ Z
            b += Z.T @ self.blocks.y[block.rows]
            flat = block.tokens.reshape(-1, d)
            for h, r in enumerate(rho):
                part = slice(h * d, (h + 1) * d)
                A[part, part] += (flat * r.reshape(-1, 1)).T @ flat - Z[:, part].T @ Z[:, part]
        A[np.diag_indices(H * d)] += 1e-6 * np.trace(A) / (H * d)
        self.P = np.linalg.solve(A, b).T.reshape(self.shape.outputs, H, d).transpose(1, 0, 2)

    def cross_entropy(self, flat: Array, ridge: float) -> tuple[float, Array]:
        """M step for W: mean of -sum rho log alpha with a ridge, and its gradient."""
        W, n, d = flat.reshape(self.W.shape), len(self.blocks), self.shape.dim
        loss, pull = 0.0, np.empty((len(W), n, d))
        for block, log, rho in zip(self.blocks, self._logs(W), self.rho, strict=True):
            loss -= float((rho * np.where(np.isfinite(log), log, 0.0)).sum())
            for h in range(len(W)):
                pull[h, block.rows] = np.matmul((rho[h] - np.exp(log[h]))[:, None], block.tokens)[:, 0]
        gradient = -np.stack([each.T @ self.blocks.q for each in pull]).ravel() / n + ridge / d * flat
        return loss / n + 0.5 * ridge / d * float(flat @ flat), gradient
