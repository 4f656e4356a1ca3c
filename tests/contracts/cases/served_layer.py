"""Attention layers as language models have them, and relatives that must be refused."""

from __future__ import annotations

import numpy as np

import unsoftmax as us
from tests.contracts.cases.attention_layer import Around
from tests.contracts.registry import Case


def llama(**rest):
    rest = {
        "positions": us.models.Rope.ladder(4),
        "kv_groups": 2,
        "norm": "rms",
        "residual": True,
        "bias": False,
    } | rest
    return us.models.AttentionLayer.random(16, 4, 4, seed=1, scale=2.0, **rest)


def learned_table():
    """A bias of its own for every distance and head."""
    table = np.random.default_rng(0).standard_normal((4, 40))
    return llama(positions=us.models.DistanceBias(table))


class Mixed:
    """Half of the heads without positions."""

    dim = outputs = 16

    def __init__(self):
        self.turning, self.still = llama(residual=False), llama(positions=None)

    def __call__(self, tokens):
        return self.turning(tokens) + self.still(tokens)


OUTSIDE = {
    "a gate from the query token": lambda: Around(llama(residual=False), lambda y, x: y * np.tanh(x[:, -1])),
    "learned bias per distance": learned_table,
    "heads without positions among others": Mixed,
    "positions added to tokens": lambda: Around(llama(), lambda y, x: y + 0.1 * np.cos(x.shape[1])),
}

CASES = [
    Case("AttentionLayer-llama", us.learners.AttentionLayer("lean"), llama, 1e-8, outside=OUTSIDE),
    Case("AttentionLayer-rotary-biases", us.learners.AttentionLayer(), lambda: llama(norm=None, bias=True), 1e-8),
]
