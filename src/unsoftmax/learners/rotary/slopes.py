"""ALiBi told from rotary positions with a query bias, head by head: a block of tokens before x = 0, in both orders.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.probes.base import Array


def read_slopes(reader: Reader, m: int, rng: np.random.Generator) -> Asking[Array | None]:
    """Slopes (H,) if turning a block of m tokens around changes the logs of its weights by a slope per step alone.

    Three queries, and three for every halving where a bias of queries scores too strongly. Under a slope, log alpha_i -
    log alpha_j changes by slope times the change of distances, whatever the tokens are; a rotation acts on them. Turned
    around, two or three tokens agree with any bias per distance: moved two steps away, they agree with a slope alone.
    None if it is no slope.
    """
    block, phase = reader.block(m, rng), "pilot"
    for _ in range(ROTARY.shrinks):
        there, back, away = yield from _turned_around(reader, block, phase)
        least = min(there.min(), back.min(), away.min())
        if least > ROTARY.small_weight * reader.scene.limits.readable:
            break
        block, phase = block / 2, "repair"
    if least <= 0:
        raise ModelMismatch("attention weights outside (0, 1) were read before x = 0: heads are not explained.")
    there, back, away = np.log(there), np.log(back), np.log(away)
    change = (there - back) - (there - back).mean(axis=1, keepdims=True)
    # Token i stands m - i away, and i + 1 away when the block is turned around.
    steps = np.arange(1, m + 1) - np.arange(m, 0, -1)
    slopes = change @ steps / (steps @ steps)
    moved = away - there
    left = max(*map(np.linalg.norm, (change - np.outer(slopes, steps), moved - moved.mean(axis=1, keepdims=True))))
    return np.asarray(slopes) if left <= reader.scene.limits.slope * np.linalg.norm(change) + known(reader) else None


def known(reader: Reader) -> float:
    """Error of the logs of weights read last, by that of what heads write."""
    return max(reader.scene.noise, reader.error) * max(log for _, log in reader.gain[-3:])


def _turned_around(reader: Reader, block: Array, phase: str) -> Asking[tuple[Array, Array, Array]]:
    """Weights (H, m) of a block (m, d) before x = 0, token by token: as it is, turned around, and two steps away."""
    m, zero = len(block), np.zeros((1, reader.scene.dim))
    z = np.stack([np.vstack([block, zero]), np.vstack([block[::-1], zero])])
    near = yield from reader.before_quiet(z, m, phase)
    away = yield from reader.before_quiet(np.vstack([block, zero, zero, zero])[None], m, phase)
    return near[0], near[1][:, ::-1], away[0]
