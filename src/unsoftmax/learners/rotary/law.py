"""Which law scores follow: linear in the token, normed (QK-norm) or capped, from a block shortened by halves.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.turns import Start, weights_before
from unsoftmax.learners.rotary.weights import Reader

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
