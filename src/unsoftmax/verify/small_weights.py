"""Sequences in which some weights of a layer are as small as its domain lets them be.

Behind a norm, or under a limit of the tokens' norm, scores reach no further apart than key directions are long: query
tokens are moved to where these are longest, one token takes nearly all the weight, and others stand at every depth
below it.

Theory: docs/theory/verification.md, "Near ties".
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.gaps import inside
from unsoftmax.verify.ties import at_depth, reach, spanning, steepest


def small_weights(
    model: AttentionLayer, size: float, spec: OracleSpec, rng: np.random.Generator, least: float = 0.0
) -> Array:
    """Sequences (batch, N, d) at tokens of norm `size` where scores are free, on the layer's sphere behind a norm.

    Weights below `least` would not show, and are not asked for.
    """
    faintest = max(VERIFY.faintest, math.log(max(least, 1e-300)))
    model = model.canonical()
    normed = model.norm in ("pre", "rms")
    q = sphere(rng, (MODELS.small_weight_sequences, spec.dim)) * size
    q = model.normalised(q) if normed else q
    heads, number = _turns(len(model.W), int(min(spec.domain.length_limit, 1e6)), rng)
    q = steepest(model.key_directions, q, heads, model.normalised if normed else None)
    if not normed:
        q = spanning(model.key_directions, q, heads, faintest, spec.domain.inside)
    norms = np.linalg.norm(q, axis=1)
    tokens = sphere(rng, (MODELS.small_weight_sequences, number * heads.shape[1], spec.dim)) * norms[:, None, None]
    tokens = model.normalised(tokens) if normed else tokens
    for i in range(tokens.shape[1]):
        g, k = divmod(i, number)
        u = model.key_directions(q, tokens.shape[1] - i if model.ordered else 0)[
            heads[:, g], np.arange(MODELS.small_weight_sequences)
        ]
        # The score that takes the weight, then those below it, from the faintest that can be reached up.
        deepest = np.minimum(-faintest, reach(tokens[:, i], u))
        place = (k - 1 + (k > 1) * rng.uniform(-0.5, 0.5)) / (number - 1)
        depth = deepest + place * np.minimum(-MODELS.shallow - deepest, 0.0)
        tokens[:, i] = at_depth(tokens[:, i], u, np.zeros(MODELS.small_weight_sequences) if k == 0 else depth)
    # A norm undoes what shortens its tokens.
    return inside(np.concatenate([tokens, q[:, None]], axis=1), spec.domain.inside)


def _turns(heads: int, longest: int, rng: np.random.Generator) -> tuple[Array, int]:
    """Heads (n, g) that every sequence is for, and tokens for each of them: the top one and faint ones."""
    each = max(1, min(math.ceil(heads / MODELS.small_weight_sequences), (longest - 1) // (VERIFY.tie_length - 1)))
    number = min(1 + MODELS.depths, (longest - 1) // each)
    turns = (
        np.resize(rng.permutation(heads), MODELS.small_weight_sequences * each)
        .reshape(each, MODELS.small_weight_sequences)
        .T
    )
    return turns, number
