"""Held-out error against records used: the same class fitted to fewer of the records, judged by the same others."""

from __future__ import annotations

import numpy as np

from unsoftmax.fitting.blocks import Blocks
from unsoftmax.fitting.heads import Heads
from unsoftmax.fitting.recipes import recipe
from unsoftmax.fitting.search import Search, found
from unsoftmax.probes.base import Array

SHARES = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0)
"""Parts of the fitted records that the curve is made of."""

_ATTEMPTS = 8
"""Starts per point: a curve shows how far few records lead, not how far patience does."""


def learning_curve(search: Search, held: Blocks, x: Array, rng: np.random.Generator) -> list[tuple[int, float]]:
    """(records fitted, root mean square error on held-out records relative to their answers); x is the whole fit's."""
    blocks = search.problem.blocks
    order, points = rng.permutation(blocks.order), []
    for share in SHARES:
        count = max(1, round(share * len(order)))
        part = Search(Heads(Blocks(blocks.log, order[:count]), search.problem.shape), search.arrived * share)
        best = found(part, recipe(part, rng))
        if share < 1:
            best.pull(_ATTEMPTS)
        points.append((count, held_out_error(Heads(held, search.problem.shape), best.x if share < 1 else x)))
    return points


def held_out_error(problem: Heads, x: Array) -> float:
    """Root mean square error on these records, relative to the root mean square of their answers."""
    size = float((problem.blocks.y**2).mean()) or 1.0
    return float(np.sqrt((problem.at(x).residual ** 2).mean() / size))
