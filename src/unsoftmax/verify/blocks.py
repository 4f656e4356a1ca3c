"""Equivalence of the attention of a block: what fresh contexts add to endless query tokens.

Theory: docs/theory/verification.md, "Vector answers", blocks.
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.learners.block.infinity import ENDLESS, LENGTHS, Infinity
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Model
from unsoftmax.models.layer_behind import LayerBehind
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.gaps import representable
from unsoftmax.verify.layers import MOST_CLAIMED, NEAR_TIES, REACH, SLACK, near_ties
from unsoftmax.verify.plan import Checked, Plan, Statement, exactly
from unsoftmax.verify.stated import LARGEST, errors_of, moves, statements

_RANDOM = {2: 2, 3: 2, 5: 2, 13: 2, 34: 1, 300: 1}
"""Random sequences of each length, as for layers."""


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks: contexts, and their query tokens alone, at every length."""
    contexts = sum(count for n, count in _RANDOM.items() if n <= spec.domain.length_limit) + NEAR_TIES
    return 2 * len(LENGTHS["full"]) * contexts


def check(model: LayerBehind, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Random contexts and near ties, extrapolated as the learner does it; one-token answers are the network's."""
    rng = np.random.default_rng([seed, 0xB10C5])
    far = Infinity.of(model.readout, model.final_norm)
    layer, size = model.layer.astype("float64"), math.sqrt(spec.dim)
    lengths = {n: count for n, count in _RANDOM.items() if n <= spec.domain.length_limit}
    rounds = {
        "random contexts": [sphere(rng, (count, n, spec.dim)) * size for n, count in lengths.items()],
        "near ties": [near_ties(layer, size, spec, rng)],
    }
    found: list[Claim] = []
    stated = Statement()
    for name, designs in rounds.items():
        gap, reach, scale = 0.0, 0.0, 0.0
        for tokens in designs:
            X = representable(tokens)
            y = yield from far.added(X[:, :-1], X[:, -1], "verify")
            wrong = added(layer, X, far) - y
            scale = max(scale, float(np.sqrt(np.mean(y**2))))
            gap = max(gap, float(np.abs(wrong).max()) / scale if scale else 0.0)
            largest = 1.0 if name != "near ties" else LARGEST
            moved = moves(layer, lambda other, X=X: added(other, X, far), rng, largest)  # type: ignore[misc]
            reach = max(reach, math.sqrt(float(sum(moved.values(), np.zeros(len(X))).max())) / scale if scale else 0.0)
            if name == "near ties":
                stated = statements(layer, errors_of(moved, wrong, y), f"{len(X)} fresh contexts with near ties")
        noise = far.noise / scale if scale else 1.0
        bound = max(SLACK * math.sqrt(spec.dim) * noise, min(REACH * reach * allows.relative_error, MOST_CLAIMED))
        words = "max gap relative to what attention adds because of the context, at endless query tokens"
        found.append(Claim(name, min(bound, 0.1), gap, statement=words))
    return Checked(tuple(found), stated)


PLAN = Plan(exactly(queries), check)


def added(model: Model, X: Array, far: Infinity) -> Array:
    """What a layer predicts of `Infinity.added`, (n, d)."""
    assert isinstance(model, AttentionLayer)
    last = ENDLESS * far.on_sphere(X[:, -1:])
    y = model(np.concatenate([X[:, :-1], last], axis=1)) - model(last)
    return np.stack([far.visible(q) @ row for q, row in zip(last[:, 0], y, strict=True)])
