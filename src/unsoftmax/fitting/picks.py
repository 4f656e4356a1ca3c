"""Argmax attention, the limit of large W: every answer is the value of one token of its sequence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from unsoftmax.fitting.blocks import Blocks
from unsoftmax.fitting.heads import Heads
from unsoftmax.fitting.mixture import levels, regressed
from unsoftmax.fitting.shape import Shape
from unsoftmax.probes.base import Array

_PICKED = 1e-6
"""A share of the answers' deviation: an answer this near to one token's value is that token's value."""

_NEARLY_ALL = 0.9
"""Share of answers that are one token's value; chance brings 1e-6 of them there."""

_LEVELS = 40
"""Steps of the falling noise, a factor 0.85 each: from the deviation of the answers down to 2e-3 of it."""

_RIDGES = (0.3, 0.1, 0.03)
"""Ridges of the mixtures: few records need large ones."""

_STARTS = 8
"""Random values tried beside those of the fit and of the mean token."""


def picks_one_token(problem: Heads, x: Array) -> bool:
    """Whether some v makes nearly every answer the value of one token of its sequence.

    For each start, the likelihood of v under picks at random, whose noise falls; then tokens nearest to the answers
    and least squares on them, in turn.
    """
    blocks, shape = problem.blocks, problem.shape
    longer = blocks.lengths > 1
    if shape.heads > 1 or shape.outputs > 1 or longer.sum() < shape.dim:
        return False
    rng = np.random.default_rng([0, 0xA2])
    mean, fitted = regressed(blocks, shape)[0, 0], shape.split(x)[2][0, 0]
    size = max(float(np.linalg.norm(mean)), float(np.linalg.norm(fitted)))
    others = (mean + size / shape.dim**0.5 * rng.standard_normal(shape.dim) for _ in range(_STARTS))
    for v in chain((fitted, mean), _mixtures(problem), others):
        v = _sharpened(blocks, _annealed(blocks, v))
        gap = _nearest(blocks, v)[1]
        if float((gap <= _PICKED * blocks.y.std())[longer].mean()) >= _NEARLY_ALL:
            return True
    return False


def _mixtures(problem: Heads) -> Iterator[Array]:
    """Values of heads fitted as mixtures, whose picks follow scores."""
    blocks, shape = problem.blocks, Shape(1, problem.shape.dim)
    start = np.concatenate([np.zeros(shape.scores), regressed(blocks, shape).ravel()])
    square = float((blocks.q**2).mean()) or 1.0
    for ridge in _RIDGES:
        *_, x = levels(blocks, shape, start, ridge * square**2)
        yield shape.split(x)[2][0, 0]


def _annealed(blocks: Blocks, v: Array) -> Array:
    """EM for v: each token's share of a record by how near its value is, least squares on the shares."""
    d, unit = len(v), float(blocks.y.std()) or 1.0
    for level in range(_LEVELS):
        s = unit * 0.85**level
        A, b = 1e-9 * np.eye(d), np.zeros(d)
        for block in blocks:
            y = blocks.y[block.rows]
            closeness = -((block.tokens @ v - y) ** 2) / (2 * s * s)
            if block.beyond is not None:
                closeness = np.where(block.beyond, -np.inf, closeness)
            share = np.exp(closeness - closeness.max(axis=1, keepdims=True))
            share /= share.sum(axis=1, keepdims=True)
            flat = block.tokens.reshape(-1, d)
            A += (flat * share.reshape(-1, 1)).T @ flat
            b += flat.T @ (share * y).ravel()
        v = np.linalg.solve(A, b)
    return v


def _sharpened(blocks: Blocks, v: Array) -> Array:
    """Nearest tokens and least squares, until picks no longer change; the worse half of the records has no say."""
    for _ in range(20):
        picked, gap = _nearest(blocks, v)
        good = gap <= np.median(gap)
        new = np.linalg.lstsq(picked[good], blocks.y[good, 0], rcond=None)[0]
        if np.allclose(new, v, rtol=1e-12, atol=0.0):
            break
        v = new
    return v


def _nearest(blocks: Blocks, v: Array) -> tuple[Array, Array]:
    """The token of each record whose value is nearest to the answer (n, d), and how near (n,)."""
    picked, gap = np.empty_like(blocks.q), np.empty(len(blocks))
    for block in blocks:
        gaps = np.abs(block.tokens @ v - blocks.y[block.rows])
        best = gaps.argmin(axis=1)
        places = np.arange(len(best))
        picked[block.rows], gap[block.rows] = block.tokens[places, best], gaps[places, best]
    return picked, gap
