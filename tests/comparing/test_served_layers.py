"""Layers with positions are held against a reference like all others: equal, or a change that shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

import unsoftmax as us

LAYER = us.models.AttentionLayer.random(
    16, 4, 4, kv_groups=2, positions=us.models.Rope.ladder(4), norm="rms", residual=True, bias=False, scale=2.0, seed=1
)
CHANGED = {
    "keys by a billionth": lambda: replace(LAYER, K=LAYER.K * (1 + 1e-9)),
    "another base": lambda: replace(LAYER, positions=us.models.Rope.ladder(4, 2e4)),
}


def test_the_same_layer_is_the_same():
    assert us.compare(us.oracle(LAYER), LAYER).verdict == "same"


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_layer_differs(name):
    assert us.compare(us.oracle(CHANGED[name]()), LAYER).differs
