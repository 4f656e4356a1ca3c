"""Score functions of a layer's heads, compared by their values at fixed random tokens.

Keys and queries have symmetries that depend on positions, norms and biases. Score functions have none: two that agree
at random tokens and distances agree everywhere (analytic functions that differ do so almost everywhere).
"""

from __future__ import annotations

import numpy as np

from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array
from unsoftmax.models.multi_head import same
from unsoftmax.models.positions import Rope

_LAST = 16
"""Random sequences on which the scores of two layers are compared."""

_LENGTH = 33
"""Tokens of each: distances up to 32, where the slower half of the usual rotations shows too."""

DISTANCES = (0, 1, 2, 16)
"""Distances at which the score matrices of layers with positions are compared."""


def score_table(layer: AttentionLayer) -> Array:
    """Scores (H, 16, 33) of fixed random tokens, as the heads see them; off their mean where that does not show."""
    rng = np.random.default_rng(0x5C02E)
    tokens = rng.standard_normal((_LAST, _LENGTH, layer.dim))
    scores = layer.canonical().scores(tokens)
    absolute = layer.sinks is not None or layer.softcap is not None
    return scores if absolute else np.asarray(scores - scores.mean(axis=2, keepdims=True))


def frequencies(layer: AttentionLayer) -> Array:
    """Turning frequencies of a layer, from fast to slow; none without rotary positions."""
    return layer.positions.turning if isinstance(layer.positions, Rope) else np.zeros(0)


def same_weighing(a: AttentionLayer, b: AttentionLayer, tolerance: float) -> bool:
    """Whether soft cap and window agree, and both or none have sinks."""
    if (a.window, a.softcap is None, a.sinks is None) != (b.window, b.softcap is None, b.sinks is None):
        return False
    return a.softcap is None or same(np.array(a.softcap), np.array(b.softcap), tolerance)


def add_up_to_nothing(a: AttentionLayer, b: AttentionLayer, tolerance: float) -> bool:
    """Whether the heads of a minus those of b vanish: heads of equal scores (and sinks) are added up."""
    scores = np.concatenate([score_table(a), score_table(b)])
    P = np.concatenate([a.canonical().P, -b.canonical().P])
    if a.sinks is not None and b.sinks is not None:
        logits = np.concatenate([a.sinks, b.sinks])
        scores = scores - logits[:, None, None]
    left = list(range(len(P)))
    while left:
        first = left[0]
        size = tolerance * np.linalg.norm(scores[first])
        group = [h for h in left if np.linalg.norm(scores[h] - scores[first]) <= size]
        left = [h for h in left if h not in group]
        if np.linalg.norm(P[group].sum(axis=0)) > tolerance * np.linalg.norm(P[group], axis=(1, 2)).sum():
            return False
    return True
