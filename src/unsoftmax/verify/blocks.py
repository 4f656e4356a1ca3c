"""Equivalence of the attention of a block: what fresh contexts add to endless query tokens.

Theory: docs/theory/verification.md, "Vector answers", blocks.
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.learners.block.constants import BLOCK
from unsoftmax.learners.block.infinity import LENGTHS, Infinity
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Model
from unsoftmax.models.layer_behind import LayerBehind
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.gaps import size_of
from unsoftmax.verify.layers import Answering, compared, near_ties, random_lengths
from unsoftmax.verify.plan import Checked, Plan, exactly


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks: contexts, and their query tokens alone, at every length."""
    return 2 * len(LENGTHS["full"]) * (sum(random_lengths(spec).values()) + MODELS.layer_ties)


def check(model: LayerBehind, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Random contexts and near ties, extrapolated as the learner does it; one-token answers are the network's."""
    rng = np.random.default_rng([seed, 0xB10C5])
    far = Infinity.of(model.readout, model.final_norm)
    layer, size = model.layer.astype("float64"), math.sqrt(spec.dim)
    words = "max gap relative to what attention adds because of the context, at endless query tokens"
    random = [sphere(rng, (count, n, spec.dim)) * size for n, count in random_lengths(spec).items()]
    claims = {"random contexts": (random, words), "near ties": ([near_ties(layer, size, spec, rng)], words)}
    seen = Answering(
        lambda other, X: added(other, X, far),
        lambda X, y: size_of(y),
        lambda y, size: far.noise / size,
        lambda X: far.added(X[:, :-1], X[:, -1], "verify"),
    )
    return (yield from compared(layer, claims, seen, allows, spec.dim, rng))


PLAN = Plan(exactly(queries), check)


def added(model: Model, X: Array, far: Infinity) -> Array:
    """What a layer predicts of `Infinity.added`, (n, d)."""
    assert isinstance(model, AttentionLayer)
    last = BLOCK.endless_length * far.on_sphere(X[:, -1:])
    y = model(np.concatenate([X[:, :-1], last], axis=1)) - model(last)
    return np.stack([far.visible(q) @ row for q, row in zip(last[:, 0], y, strict=True)])
