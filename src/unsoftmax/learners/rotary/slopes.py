"""ALiBi told from rotary positions with a query bias, head by head: a block of tokens before x = 0, in both orders.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.probes.base import Array


def read_slopes(reader: Reader, m: int, rng: np.random.Generator) -> Asking[Array | None]:
    """Slopes (H,) if turning a block of m tokens around changes the logs of its weights by a slope per step alone.

    Three queries. Under a slope, log alpha_i - log alpha_j changes by slope times the change of distances, whatever the
    tokens are; a rotation acts on them. Turned around, two or three tokens agree with any bias per distance: moved two
    steps away as they are, they agree with a slope alone. None if it is no slope.
    """
    block, zero = reader.block(m, rng), np.zeros((1, reader.scene.dim))
    z = np.stack([np.vstack([block, zero]), np.vstack([block[::-1], zero])])
    weights = yield from reader.before_quiet(z, m, "pilot")
    away = yield from reader.before_quiet(np.vstack([block, zero, zero, zero])[None], m, "pilot")
    if min(weights.min(), away.min()) <= 0:
        raise ModelMismatch("attention weights outside (0, 1) were read before x = 0: heads are not explained.")
    there, back = np.log(weights[0]), np.log(weights[1])[:, ::-1]
    change = (there - back) - (there - back).mean(axis=1, keepdims=True)
    # Token i stands m - i away, and i + 1 away when the block is turned around.
    steps = np.arange(1, m + 1) - np.arange(m, 0, -1)
    slopes = change @ steps / (steps @ steps)
    moved = np.log(away[0]) - there
    left = max(
        np.linalg.norm(change - np.outer(slopes, steps)), np.linalg.norm(moved - moved.mean(axis=1, keepdims=True))
    )
    size = max(float(np.linalg.norm(change)), 1e-300)
    if left > reader.scene.limits.slope * size:
        return None
    return np.asarray(slopes)
