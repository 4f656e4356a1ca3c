"""SOLVE many noisy token-pair designs at once, without inverting a single noisy answer.

A logit of a noisy answer is biased. W is instead the point at which the linearised residuals of all blocks average to
zero, with gains taken from the current model, so that noise enters linearly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaincinv

from unsoftmax.probes.base import Array
from unsoftmax.probes.norm_budget import TokenPairs
from unsoftmax.solvers.token_pairs import TokenPairSystem

_STEPS = 40
_RARELY = 1e-4
_DRAWS = 64
_DRAWN_BLOCKS = 16
_CAP = float(1 / (expit(3.0) * expit(-3.0)))
"""Largest gain of a step, that of a logit of 3: steeper pairs move in smaller steps instead of jumping."""


@dataclass(frozen=True, eq=False)
class Block:
    """One design and its answers y (d, d)."""

    design: TokenPairs
    y: Array


def solve_blocks(blocks: list[Block], v: Array) -> tuple[Array, float]:
    """W (d, d) from all blocks, and the root mean square of what it leaves unexplained in an answer."""
    systems = [TokenPairSystem(block.design.X1, block.design.X2) for block in blocks]
    W = np.zeros((len(v), len(v)))
    best = math.inf
    for _ in range(_STEPS):
        # At W = 0 every gain is 4: the first step is the linear estimate, unbiased for small logits.
        moves = [system.solve(_linearised(block, v, W)) for block, system in zip(blocks, systems, strict=True)]
        move = np.mean(moves, axis=0)
        W = W + move
        step = float(np.linalg.norm(move))
        if step <= 1e-12 * np.linalg.norm(W) or (step >= best and step <= 1e-6 * np.linalg.norm(W)):
            break
        best = min(best, step)
    left = float(np.mean([np.mean(residual(block, v, W) ** 2) for block in blocks]))
    return W, math.sqrt(left * len(blocks) / max(len(blocks) - 1, 1))


def saturation(blocks: list[Block], v: Array, deviation: float) -> float:
    """Mean of (alpha - 1/2)^2 with the part that noise of this deviation adds taken off; 1/4 if all is saturated."""
    seen = []
    for block in blocks:
        base, span = _base_and_span(block.design, v)
        seen.append(float(np.mean(((block.y - base) / span - 0.5) ** 2 - (deviation / span) ** 2)))
    return float(np.mean(seen))


def error_quantile(blocks: list[Block], v: Array, W: Array, deviation: float, value_deviation: float) -> float:
    """What ||W^ - W||_F rarely exceeds (once in 10^4) if single answers and the entries of v deviate so much.

    The squared error is a weighted sum of squares, with few large weights where d is small or a direction is probed
    weakly: drawn, and extrapolated as the gamma law of the same mean and variance.
    """
    rng = np.random.default_rng(0)
    used = blocks[:_DRAWN_BLOCKS]
    dv = value_deviation * rng.standard_normal((_DRAWS, len(v)))
    errors = np.zeros((_DRAWS, len(v), len(v)))
    for block in used:
        design = block.design
        system = TokenPairSystem(design.X1, design.X2)
        alpha = expit(logits_of(design, W))
        _, span = _base_and_span(design, v)
        P, Q = 1 / (span * (1 - alpha)), 1 / (span * alpha)
        # As many blocks as were drawn stand for all of them.
        scale = deviation * math.sqrt(len(used) / len(blocks)) * (P + Q)
        for k in range(_DRAWS):
            T = scale * rng.standard_normal(alpha.shape) + (design.X1 @ dv[k])[:, None] * P + Q * (design.X2 @ dv[k])
            errors[k] += system.solve(T) / len(used)
    squares = (errors**2).sum(axis=(1, 2))
    mean = float(squares.mean())
    if mean == 0:
        return 0.0
    # Fewer effective squares than one do not occur; of a few draws their number is known to about a quarter.
    effective = max(1.0, 0.75 * 2 * mean**2 / float(squares.var(ddof=1)))
    return 1.1 * math.sqrt(mean * 2 * float(gammaincinv(effective / 2, 1 - _RARELY)) / effective)


def deviation_at_most(deviation: float, freedom: float) -> float:
    """What the true deviation rarely exceeds, if it was estimated from `freedom` independent residuals."""
    return deviation * math.sqrt(freedom / (2 * float(gammaincinv(freedom / 2, _RARELY))))


def logits_of(design: TokenPairs, W: Array) -> Array:
    """(x1_l - x2_j)'W x2_j, (m, n)."""
    U = W @ design.X2.T
    return np.asarray(design.X1 @ U - np.einsum("jd,dj->j", design.X2, U)[None, :])


def residual(block: Block, v: Array, W: Array) -> Array:
    """Answers minus the model's, (m, n)."""
    base, span = _base_and_span(block.design, v)
    return np.asarray(block.y - base - span * expit(logits_of(block.design, W)))


def _base_and_span(design: TokenPairs, v: Array) -> tuple[Array, Array]:
    base = (design.X2 @ v)[None, :]
    return base, (design.X1 @ v)[:, None] - base


def _linearised(block: Block, v: Array, W: Array) -> Array:
    alpha = expit(logits_of(block.design, W))
    _, span = _base_and_span(block.design, v)
    return np.asarray(residual(block, v, W) / span * np.minimum(1 / (alpha * (1 - alpha)), _CAP))
