"""SOLVE many noisy token-pair designs at once, without inverting a single noisy answer.

A logit of a noisy answer is biased. W is instead the point at which the linearised residuals of all blocks average to
zero, with gains taken from the current model, so that noise enters linearly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from unsoftmax.probes.base import Array
from unsoftmax.probes.norm_budget import TokenPairs
from unsoftmax.solvers.token_pairs import TokenPairSystem

_STEPS = 40
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


def expected_error(block: Block, v: Array, W: Array, deviation: float, value_deviation: float) -> float:
    """Root mean square of ||W^ - W||_F if the answers of a block deviate so much, and the entries of v so much."""
    system = TokenPairSystem(block.design.X1, block.design.X2)
    alpha = expit(logits_of(block.design, W))
    _, span = _base_and_span(block.design, v)
    P, Q = 1 / (span * (1 - alpha)), 1 / (span * alpha)
    noise = system.noise_rms(deviation / (span * alpha * (1 - alpha)))
    return math.hypot(noise, system.value_rms(P, Q) * value_deviation)


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
