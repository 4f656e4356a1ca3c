"""Layers with positions are held against a reference like all others: equal, or a change that shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import unsoftmax as us
from tests.models.test_served_layer import LAYERS

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


def weighed(layer, **changed):
    return replace(layer, weighing=replace(layer.weighing, **changed))


CAPPED, SUNK, SLOPED = LAYERS["softcap"], LAYERS["sinks and window"], LAYERS["alibi"]
PARTS = {
    "a cap by a millionth": (CAPPED, lambda: weighed(CAPPED, softcap=CAPPED.softcap * (1 + 1e-6))),
    "sinks by a millionth": (SUNK, lambda: weighed(SUNK, sinks=SUNK.sinks + 1e-6)),
    "a window by one token": (SUNK, lambda: weighed(SUNK, window=SUNK.window + 1)),
    "slopes by a millionth": (
        SLOPED,
        lambda: replace(SLOPED, positions=us.models.Alibi(SLOPED.positions.slopes * (1 + 1e-6))),
    ),
    "queries behind their norm": (
        LAYERS["qk norm"],
        lambda: replace(LAYERS["qk norm"], Q=LAYERS["qk norm"].Q * np.linspace(1, 1 + 1e-6, 4)[:, None]),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_variant_is_the_same_as_its_canonical_form(name):
    assert us.compare(us.oracle(LAYERS[name].canonical()), LAYERS[name]).verdict == "same"


SLOW = ("a cap by a millionth", "a window by one token", "queries behind their norm")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] if n in SLOW else []) for n in PARTS])
def test_a_changed_part_of_a_variant_differs(name):
    layer, changed = PARTS[name]
    assert us.compare(us.oracle(changed()), layer).differs
