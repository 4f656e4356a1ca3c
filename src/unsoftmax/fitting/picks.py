"""Argmax attention, the limit of large W: every answer is the value of one token of its sequence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

import numpy as np

from unsoftmax.fitting.blocks import Blocks, attend
from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.heads import Heads
from unsoftmax.fitting.mixture import levels, regressed
from unsoftmax.fitting.shape import Shape
from unsoftmax.probes.base import Array


def unbounded(problem: Heads, x: Array, deviations: Array) -> bool:
    """Whether scores without bound explain the answers within their noise (n,), so that larger W fit as well as x.

    Either every answer is one token's value, that of the largest score; or every answer is some token's value, up to
    noise that would not bring it there by chance: then a fit that mixes a few of them has used up its unknowns.
    """
    blocks, shape = problem.blocks, problem.shape
    if shape.heads > 1 or shape.outputs > 1:
        return False
    from scipy.stats import binom, chi2  # slow imports, needed at the end of a fit only

    W, _, P = shape.split(x)
    u, picked = blocks.q @ W[0].T, np.empty_like(blocks.q)
    for block in blocks:
        best = attend(block, u[block.rows])[0].argmax(axis=1)
        picked[block.rows] = block.tokens[np.arange(len(best)), best]
    z, wanted = picked / deviations[:, None], blocks.y[:, 0] / deviations
    left = wanted - z @ np.linalg.lstsq(z, wanted, rcond=None)[0]
    if left @ left <= chi2.ppf(1 - FITTING.chance, len(wanted)):
        return True
    v, near = _sharpened(blocks, P[0, 0]), FITTING.picked_deviations * deviations
    far = int((_nearest(blocks, v)[1] > near).sum())
    return far <= binom.ppf(
        1 - FITTING.chance, len(near), math.erfc(FITTING.picked_deviations / math.sqrt(2))
    ) and _telling(blocks, v, near)


def _telling(blocks: Blocks, v: Array, near: Array) -> bool:
    """Whether answers are seldom so near to a value of another record's tokens."""
    return float((_nearest(blocks, v, shift=1)[1] <= near)[blocks.lengths > 1].mean()) <= FITTING.other_records


def picks_one_token(problem: Heads, x: Array, deviations: Array | float = 0.0) -> bool:
    """Whether some v makes nearly every answer the value of one token of its sequence, within the noise (n,).

    For each start, the likelihood of v under picks at random, whose noise falls; then tokens nearest to the answers
    and least squares on them, in turn.
    """
    blocks, shape = problem.blocks, problem.shape
    longer = blocks.lengths > 1
    if shape.heads > 1 or shape.outputs > 1 or longer.sum() < shape.dim:
        return False
    near = np.maximum(FITTING.picked * blocks.y.std(), FITTING.picked_deviations * deviations) + np.zeros(len(blocks))
    size = int(blocks.lengths.sum()) * shape.dim
    rounds = min(FITTING.most_mixtures, max(3, FITTING.mixture_work // size))
    start = np.concatenate([np.zeros(shape.dim**2), regressed(blocks, shape).ravel()])
    known = ((v, 0) for v in (shape.split(x)[2][0, 0], start[shape.dim**2 :]))
    mixtures = (_mixed(blocks, start, ridge) for ridge in FITTING.pick_ridges)
    for v, first in chain(known, mixtures, _at_random(blocks, start, rounds)):
        v = _sharpened(blocks, _annealed(blocks, v, first))
        if float((_nearest(blocks, v)[1] <= near)[longer].mean()) >= FITTING.nearly_all:
            return _telling(blocks, v, near)
    return False


_Start = tuple[Array, int]
"""Values v and the step of the falling noise that they are good for."""


def _mixed(blocks: Blocks, start: Array, ridge: float) -> _Start:
    """Values of a head fitted as a mixture, whose picks follow scores; from W raveled and v."""
    shape, square = Shape(1, blocks.q.shape[1]), float((blocks.q**2).mean()) or 1.0
    *_, x = levels(blocks, shape, start, ridge * square**2)
    return shape.split(x)[2][0, 0], FITTING.warm_step


def _at_random(blocks: Blocks, start: Array, rounds: int) -> Iterator[_Start]:
    """Random values, about the mean token's and about 0 in turn, and those of mixtures from random scores."""
    rng, d = np.random.default_rng([0, 0xA2]), blocks.q.shape[1]
    square = float((blocks.q**2).mean()) or 1.0
    v = start[d * d :]
    near, far = float(np.linalg.norm(v)) / d**0.5, float(blocks.y.std()) / square**0.5
    for number in range(rounds):
        for k in range(FITTING.values_per_mixture):
            yield (v + near * rng.standard_normal(d) if k % 2 else far * rng.standard_normal(d)), 0
        scores = FITTING.start_scores / (d * square) * rng.standard_normal(d * d)
        random = np.concatenate([scores, v + near * rng.standard_normal(d)])
        yield _mixed(blocks, random, FITTING.pick_ridges[number % 2])


def _annealed(blocks: Blocks, v: Array, first: int) -> Array:
    """EM for v: each token's share of a record by how near its value is, least squares on the shares."""
    d, unit = len(v), float(blocks.y.std()) or 1.0
    for level in range(first, FITTING.falling_steps):
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


def _nearest(blocks: Blocks, v: Array, shift: int = 0) -> tuple[Array, Array]:
    """The token of each record whose value is nearest to the answer (n, d), and how near (n,).

    `shift`: to the answer of the record so many places further, for comparison.
    """
    picked, gap = np.empty_like(blocks.q), np.empty(len(blocks))
    y = np.roll(blocks.y, shift, axis=0)
    for block in blocks:
        gaps = np.abs(block.tokens @ v - y[block.rows])
        best = gaps.argmin(axis=1)
        places = np.arange(len(best))
        picked[block.rows], gap[block.rows] = block.tokens[places, best], gaps[places, best]
    return picked, gap
