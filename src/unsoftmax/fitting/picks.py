"""Argmax attention, the limit of large W: every answer is the value of one token of its sequence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

import numpy as np

from unsoftmax.fitting.blocks import Blocks, attend
from unsoftmax.fitting.heads import Heads
from unsoftmax.fitting.mixture import levels, regressed
from unsoftmax.fitting.shape import Shape
from unsoftmax.probes.base import Array

_PICKED = 1e-6
"""A share of the answers' deviation: an answer this near to one token's value is that token's value."""

_NOISES = 3.0
"""Deviations of the noise within which it is, too: one answer in 400 is farther off by chance."""

_NEARLY_ALL = 0.9
"""Share of answers that are one token's value."""

_OTHERS = 0.5
"""Most of the answers that may be so near to a token of another record: beyond, nearness says nothing."""

_CHANCE = 1e-3
"""Probability that noise takes answers of argmax attention for others."""

_LEVELS = 40
"""Steps of the falling noise, a factor 0.85 each: from the deviation of the answers down to 2e-3 of it."""

_WARM = 16
"""The step from which values of a mixture are annealed (0.07 of the deviation, where a mixture ends): from the first
step on, their picks would be forgotten."""

_RIDGES = (1.0, 0.3, 0.1, 0.03)
"""Ridges of the mixtures: few records need large ones, and random starts do best with the first two."""

_SCORES = 0.5
"""Deviation of the scores of a mixture's random start."""

_EACH = 4
"""Random values per random mixture, which takes twenty times as long."""

_MOST = 25
"""Random mixtures at most. Of logs that hardly determine the scores (1.1 records per unknown, 8 to 32 tokens a record)
one value in twenty arrives in the hardest, and one mixture in ten; together they miss one such log in thousands."""

_WORK = 2**20
"""Numbers in the tokens of all records that random mixtures may look at together, three of them in any case: with many
records nearly every start arrives."""


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
    if left @ left <= chi2.ppf(1 - _CHANCE, len(wanted)):
        return True
    v, near = _sharpened(blocks, P[0, 0]), _NOISES * deviations
    far = int((_nearest(blocks, v)[1] > near).sum())
    return far <= binom.ppf(1 - _CHANCE, len(near), math.erfc(_NOISES / math.sqrt(2))) and _telling(blocks, v, near)


def _telling(blocks: Blocks, v: Array, near: Array) -> bool:
    """Whether answers are seldom so near to a value of another record's tokens."""
    return float((_nearest(blocks, v, shift=1)[1] <= near)[blocks.lengths > 1].mean()) <= _OTHERS


def picks_one_token(problem: Heads, x: Array, deviations: Array | float = 0.0) -> bool:
    """Whether some v makes nearly every answer the value of one token of its sequence, within the noise (n,).

    For each start, the likelihood of v under picks at random, whose noise falls; then tokens nearest to the answers
    and least squares on them, in turn.
    """
    blocks, shape = problem.blocks, problem.shape
    longer = blocks.lengths > 1
    if shape.heads > 1 or shape.outputs > 1 or longer.sum() < shape.dim:
        return False
    near = np.maximum(_PICKED * blocks.y.std(), _NOISES * deviations) + np.zeros(len(blocks))
    size = int(blocks.lengths.sum()) * shape.dim
    rounds = min(_MOST, max(3, _WORK // size))
    start = np.concatenate([np.zeros(shape.dim**2), regressed(blocks, shape).ravel()])
    known = ((v, 0) for v in (shape.split(x)[2][0, 0], start[shape.dim**2 :]))
    mixtures = (_mixed(blocks, start, ridge) for ridge in _RIDGES)
    for v, first in chain(known, mixtures, _at_random(blocks, start, rounds)):
        v = _sharpened(blocks, _annealed(blocks, v, first))
        if float((_nearest(blocks, v)[1] <= near)[longer].mean()) >= _NEARLY_ALL:
            return _telling(blocks, v, near)
    return False


_Start = tuple[Array, int]
"""Values v and the step of the falling noise that they are good for."""


def _mixed(blocks: Blocks, start: Array, ridge: float) -> _Start:
    """Values of a head fitted as a mixture, whose picks follow scores; from W raveled and v."""
    shape, square = Shape(1, blocks.q.shape[1]), float((blocks.q**2).mean()) or 1.0
    *_, x = levels(blocks, shape, start, ridge * square**2)
    return shape.split(x)[2][0, 0], _WARM


def _at_random(blocks: Blocks, start: Array, rounds: int) -> Iterator[_Start]:
    """Random values, about the mean token's and about 0 in turn, and those of mixtures from random scores."""
    rng, d = np.random.default_rng([0, 0xA2]), blocks.q.shape[1]
    square = float((blocks.q**2).mean()) or 1.0
    v = start[d * d :]
    near, far = float(np.linalg.norm(v)) / d**0.5, float(blocks.y.std()) / square**0.5
    for number in range(rounds):
        for k in range(_EACH):
            yield (v + near * rng.standard_normal(d) if k % 2 else far * rng.standard_normal(d)), 0
        scores = _SCORES / (d * square) * rng.standard_normal(d * d)
        random = np.concatenate([scores, v + near * rng.standard_normal(d)])
        yield _mixed(blocks, random, _RIDGES[number % 2])


def _annealed(blocks: Blocks, v: Array, first: int) -> Array:
    """EM for v: each token's share of a record by how near its value is, least squares on the shares."""
    d, unit = len(v), float(blocks.y.std()) or 1.0
    for level in range(first, _LEVELS):
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
