"""Which law scores follow: linear in the token, normed (QK-norm) or capped, from a block shortened by halves.

ALiBi told from rotary positions with a query bias, head by head: a block of tokens before x = 0, in both orders.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.turns import Start, weights_before
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


_WEIGHT = 1e-8
"""Error of a weight of exact answers at most, which its log shows divided by the weight: strong scores left 2e-9."""

_NORMED = 0.05
"""Logs of tokens and of their halves agree that well behind a norm, whose eps is all that tells them apart."""

Law = Literal["linear", "normed", "capped"]


def find_law(reader: Reader, begun: Start) -> Asking[Law]:
    """Two queries: log ratios r of the weights of z, z/2, z/4 have r(1) - 3 r(1/2) + 2 r(1/4) = 0 if affine."""
    m = len(begun.block)
    z = np.stack([np.vstack([scale * begun.block, begun.q[:1]]) for scale in (0.5, 0.25)])
    weights = np.concatenate([begun.weights[:1], (yield from weights_before(reader, z, m, "pilot"))])
    logs = np.log(np.maximum(weights, 1e-300))
    # What a slope per step of distance adds is the same in all three.
    whole, half, quarter = logs[..., 1:] - logs[..., :1]
    spread = max(float(np.abs(whole - quarter).max()), 1e-300)
    bend = np.abs(whole - 3 * half + 2 * quarter)
    size = float(np.abs(whole).max())
    lost = _WEIGHT / np.maximum(np.minimum(weights[..., 1:], weights[..., :1]).min(axis=0), 1e-300)
    allowed = reader.scene.limits.bend * max(spread, size) + (lost if reader.scene.exact else 0.0)
    if np.all(bend <= allowed):
        return "linear" if spread > _NORMED * size or size == 0 else "normed"
    return "normed" if float(np.abs(whole - half).max()) <= _NORMED * size else "capped"
