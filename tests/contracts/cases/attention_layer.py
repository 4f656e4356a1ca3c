"""Attention layers with vector answers, and vector targets that are none."""

from __future__ import annotations

import numpy as np

import unsoftmax as us
from tests.contracts.registry import Case


class Around:
    """A layer with something of its own on top."""

    accepts_counts = True

    def __init__(self, layer, change):
        self.layer, self.change = layer, change
        self.dim, self.outputs = layer.dim, layer.outputs

    def __call__(self, tokens, counts=None):
        return self.change(self.layer(tokens, counts), tokens)


def layer(**rest):
    return us.models.AttentionLayer.random(12, 3, seed=1, **rest)


def without_preference():
    """One head attends to all tokens alike: hard attention never settles."""
    found = layer()
    Q, c = found.Q.copy(), found.c.copy()
    Q[1], c[1] = 0.0, 0.0
    return us.models.AttentionLayer(found.K, Q, c, found.O, found.V, found.constant)


OUTSIDE = {
    "network behind": lambda: Around(layer(), lambda y, x: np.maximum(y, 0.1 * y)),
    "bounded answers": lambda: Around(layer(), lambda y, x: np.tanh(y)),
    "product with the query token": lambda: Around(layer(), lambda y, x: y * x[:, -1]),
    "head without preference": without_preference,
}

CASES = [
    Case("AttentionLayer", us.learners.AttentionLayer(preset="lean"), layer, 1e-8, outside=OUTSIDE),
    Case("AttentionLayer-post", us.learners.AttentionLayer(), lambda: layer(norm="post", residual=True), 1e-7),
    Case("AttentionLayer-pre", us.learners.AttentionLayer(), lambda: layer(norm="pre", residual=True), 1e-9),
    Case("AttentionLayer-robust", us.learners.AttentionLayer("robust"), lambda: layer(residual=True), 1e-11),
]
