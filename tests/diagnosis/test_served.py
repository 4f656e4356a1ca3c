"""Layers with positions are named and routed to their learner; others stay outside."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us

ROPE, SLOPES = us.models.Rope.ladder(8), us.models.Alibi(2.0 ** -np.arange(1.0, 5.0))

KINDS = {
    "rotary": ({"positions": ROPE}, ("rms", "rotary", False, None)),
    "rotary, biases": ({"positions": ROPE, "bias": True}, ("rms", "bias", False, None)),
    "half of the rows turn": ({"positions": us.models.Rope.ladder(8, share=0.5)}, ("rms", "rotary", False, None)),
    "base 1e6": ({"positions": us.models.Rope.ladder(8, 1e6)}, ("rms", "rotary", False, None)),
    "no norm": ({"positions": ROPE, "norm": None}, (None, "rotary", False, None)),
    "ALiBi": ({"positions": SLOPES}, ("rms", "bias", False, None)),
    "sinks": ({"positions": ROPE, "sinks": True}, ("rms", "rotary", True, None)),
    "sinks, no norm": ({"positions": ROPE, "sinks": True, "norm": None}, (None, "rotary", True, None)),
    "window": ({"positions": ROPE, "window": 12}, ("rms", "rotary", False, 12)),
    "soft cap": ({"positions": ROPE, "softcap": 20.0}, ("rms", "rotary", False, None)),
    "QK-norm": ({"positions": ROPE, "qk_norm": True}, ("rms", "rotary", False, None)),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_kinds_are_named(name, seed):
    rest, expected = KINDS[name]
    usual = {"norm": "rms", "residual": True, "bias": False, "kv_groups": 2, "scale": 2.0}
    layer = us.models.AttentionLayer.random(32, 4, 8, seed=seed, **(usual | rest))
    found = us.diagnose(us.oracle(layer))
    values = {finding.name: finding.value for finding in found.findings}
    named = found.learner if values["positions"] != "bias" else found.suggestions[0].learner
    assert isinstance(named, us.learners.AttentionLayer)
    assert tuple(values[key] for key in ("norm", "positions", "sinks", "window")) == expected
    assert found.usage.billed <= 190 + 4 * 32


def test_positions_beside_a_layer_norm_stay_outside():
    layer = us.models.AttentionLayer.random(16, 2, 8, norm="pre", residual=True, positions=ROPE, scale=2.0)
    found = us.diagnose(us.oracle(layer))
    assert found.learner is None
    assert "LayerNorm" in found.reasons[0]
