"""Starts for hot heads: as if every answer were the value of ONE token, picked by the head, plus noise that falls.

Where attention is saturated, the squared residual has a local minimum for almost every choice of winners. The
likelihood of a mixture, -log sum_j alpha_j exp(-(y - x_j.v)^2 / 2 s^2), is smooth in W as long as s is large, and
its minimum moves to the right winners while s falls. A ridge on the scores keeps undecided entries small.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unsoftmax.fitting.blocks import Blocks, attend
from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.heads import mean_tokens
from unsoftmax.fitting.shape import Shape
from unsoftmax.probes.base import Array


def regressed(blocks: Blocks, shape: Shape) -> Array:
    """P (H, m, d) of heads that attend to all tokens alike: least squares on the mean token, shared equally."""
    mean = mean_tokens(blocks, np.zeros((1, shape.dim, shape.dim)))
    P = np.linalg.lstsq(mean, blocks.y, rcond=None)[0].T / shape.heads
    return np.repeat(P[None], shape.heads, axis=0)


def levels(blocks: Blocks, shape: Shape, x: Array, ridge: float) -> Iterator[Array]:
    """Unknowns after every level, from x; one head, scalar answers."""
    from scipy.optimize import minimize  # a slow import, needed for hot heads only

    unit = float(blocks.y.std()) or 1.0
    for level in FITTING.mixture_levels:
        s = level * unit
        found = minimize(
            _cost,
            x,
            args=(blocks, shape, s, ridge),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": FITTING.mixture_steps},
        )
        x = found.x
        yield x


def _cost(x: Array, blocks: Blocks, shape: Shape, s: float, ridge: float) -> tuple[float, Array]:
    """Mean of the negative log-likelihood with the ridge, and its gradient."""
    W, factors, P = shape.split(x)
    n, v = len(blocks), P[0, 0]
    u = blocks.q @ W[0].T
    loss, pull, gradient_v = 0.0, np.empty((n, shape.dim)), np.zeros(shape.dim)
    for block in blocks:
        log_alpha, alpha = attend(block, u[block.rows])
        gap = blocks.y[block.rows] - block.tokens @ v
        likelihood, share = _shares(log_alpha - gap**2 / (2 * s * s))
        loss -= likelihood
        pull[block.rows] = np.matmul((share - alpha)[:, None, :], block.tokens)[:, 0]
        gradient_v += np.matmul((share * gap)[:, None, :], block.tokens).sum(axis=(0, 1)) / s**2
    scores = x[: shape.scores]
    gradient_W = -pull.T @ blocks.q / n
    if factors is not None:
        A, B = factors[0][0], factors[1][0]
        gradient_W = np.stack([gradient_W @ B, gradient_W.T @ A])
    gradient = np.concatenate([gradient_W.ravel() + ridge / shape.dim * scores, -gradient_v / n])
    return loss / n + 0.5 * ridge / shape.dim * float(scores @ scores), gradient


def _shares(joint: Array) -> tuple[float, Array]:
    """Sum of log sum_j exp(joint) over the records, and each token's share (b, N)."""
    top = joint.max(axis=1, keepdims=True)
    share = np.exp(joint - top)
    total = share.sum(axis=1, keepdims=True)
    return float((top + np.log(total)).sum()), share / total
