"""Layers with positions are named and routed to their learner; others stay outside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

import unsoftmax as us
from tests.diagnosis.targets import scores, softmax

ROPE, SLOPES = us.models.Rope.ladder(8), us.models.Alibi(2.0 ** -np.arange(1.0, 9.0))
FREE = us.models.Rope(np.array([1.0, 0.1234, 0.0041, 0.00031]))

KINDS = {
    "rotary": ({"positions": ROPE}, ("rms", "rotary", False, None)),
    "rotary, biases": ({"positions": ROPE, "bias": True}, ("rms", "rotary with a query bias", False, None)),
    "half of the rows turn": ({"positions": us.models.Rope.ladder(8, share=0.5)}, ("rms", "rotary", False, None)),
    "base 1e6": ({"positions": us.models.Rope.ladder(8, 1e6)}, ("rms", "rotary", False, None)),
    "frequencies of no ladder": ({"positions": FREE}, ("rms", "rotary", False, None)),
    "no norm": ({"positions": ROPE, "norm": None}, ("none", "rotary", False, None)),
    "one group": ({"positions": ROPE, "kv_groups": 1}, ("rms", "rotary", False, None)),
    "four groups": ({"positions": ROPE, "kv_groups": 4}, ("rms", "rotary", False, None)),
    "ALiBi": ({"positions": SLOPES}, ("rms", "alibi", False, None)),
    "ALiBi, biases": ({"positions": SLOPES, "bias": True}, ("rms", "alibi", False, None)),
    "sinks": ({"positions": ROPE, "sinks": True}, ("rms", "rotary", True, None)),
    "sinks, no norm": ({"positions": ROPE, "sinks": True, "norm": None}, ("none", "rotary", True, None)),
    "sinks, window": ({"positions": ROPE, "sinks": True, "window": 20}, ("rms", "rotary", True, 20)),
    "window": ({"positions": ROPE, "window": 12}, ("rms", "rotary", False, 12)),
    "soft cap": ({"positions": ROPE, "softcap": 20.0}, ("rms", "rotary", False, None)),
    "QK-norm": ({"positions": ROPE, "qk_norm": True}, ("rms", "rotary", False, None)),
}

LAWS = {"soft cap": "capped", "QK-norm": "normed"}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_kinds_are_named_within_40_and_4_d_queries(name, seed):
    rest, expected = KINDS[name]
    usual = {"norm": "rms", "residual": True, "bias": False, "kv_groups": 2, "scale": 2.0}
    layer = us.models.AttentionLayer.random(64, 8, 8, seed=seed, **(usual | rest))
    found = us.diagnose(us.oracle(layer))
    values = {finding.name: finding.value for finding in found.findings}
    assert isinstance(found.learner, us.learners.AttentionLayer)
    assert tuple(values[key] for key in ("norm", "positions", "sinks", "window")) == expected
    assert (values["heads"], values["value groups"]) == (8, rest.get("kv_groups", 2))
    assert values["score law"] == LAWS.get(name, "linear")
    assert found.usage.billed <= 40 + 4 * 64


@pytest.mark.parametrize("name", ["rotary", "rotary, biases", "ALiBi, biases", "sinks, window", "window", "QK-norm"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_small_layers_are_named_within_40_and_4_d_queries_too(name, seed):
    rest, expected = KINDS[name]
    slopes = {"positions": us.models.Alibi(2.0 ** -np.arange(1.0, 5.0))} if "ALiBi" in name else {}
    usual = {"norm": "rms", "residual": True, "bias": False, "kv_groups": 2, "scale": 2.0}
    layer = us.models.AttentionLayer.random(32, 4, 8, seed=seed, **(usual | rest | slopes))
    found = us.diagnose(us.oracle(layer))
    values = {finding.name: finding.value for finding in found.findings}
    assert tuple(values[key] for key in ("norm", "positions", "sinks", "window")) == expected
    assert (values["heads"], values["value groups"]) == (4, 2)
    assert values["score law"] == LAWS.get(name, "linear")
    assert values["limit on sequence length"] is None
    assert values["limit on token norm"] is None
    assert found.usage.billed <= 40 + 4 * 32


def test_heads_that_fill_the_space_are_named():
    rest = {"norm": "rms", "residual": True, "bias": False, "scale": 2.0, "positions": ROPE}
    found = us.diagnose(us.oracle(us.models.AttentionLayer.random(64, 8, 8, seed=3, **rest)))
    values = {finding.name: finding.value for finding in found.findings}
    assert (values["heads"], values["value groups"], values["positions"]) == (8, 8, "rotary")


FILLING = {"four of 8": (32, 4, 8), "eight of 4": (32, 8, 4), "five of 6": (32, 5, 6), "seven of 4": (32, 7, 4)}


@pytest.mark.parametrize("name", FILLING)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_heads_that_fill_the_space_are_named_within_40_and_4_d_queries(name, seed):
    d, H, s = FILLING[name]
    rest = {"norm": "rms", "residual": True, "bias": False, "scale": 2.0, "positions": us.models.Rope.ladder(s)}
    found = us.diagnose(us.oracle(us.models.AttentionLayer.random(d, H, s, seed=seed, **rest)))
    values = {finding.name: finding.value for finding in found.findings}
    assert isinstance(found.learner, us.learners.AttentionLayer)
    assert (values["heads"], values["value groups"], values["positions"]) == (H, H, "rotary")
    assert values["score law"] == "linear"
    assert found.usage.billed <= 40 + 4 * d


@pytest.mark.parametrize(("d", "s", "seed", "draw"), [(24, 8, 3, 1), (48, 16, 5, 1)])
def test_heads_that_fill_the_space_beside_biases_are_no_other_positions(d, s, seed, draw):
    """Steps show what these heads write to 2e-8 and 5e-8; small weights make 1e-3 and 2e-2 of it in eigenvalues."""
    layer = us.models.AttentionLayer.random(
        d, 3, s, norm="rms", residual=True, positions=us.models.Rope.ladder(s), seed=seed
    )
    rng = np.random.default_rng(seed)
    biases = us.models.Features(key_bias=rng.standard_normal((3, s)), query_bias=rng.standard_normal((3, s)))
    found = us.diagnose(us.oracle(replace(layer, features=biases)), seed=draw)
    assert isinstance(found.learner, us.learners.AttentionLayer)
    assert found["positions"] == "rotary with a query bias"


@pytest.mark.parametrize("seed", range(3))
def test_heads_that_fill_the_space_and_share_values_are_the_learners_own(seed):
    rest = {"norm": "rms", "residual": True, "bias": False, "scale": 2.0, "positions": ROPE, "kv_groups": 4}
    layer = us.models.AttentionLayer.random(32, 8, 8, seed=seed, **rest)
    found = us.diagnose(us.oracle(layer))
    assert isinstance(found.learner, us.learners.AttentionLayer)
    assert (found.family, found["positions"], found["norm"]) == ("attention layer", "rotary", "rms")


def biased(tables):
    """Heads whose scores have a learned bias per distance."""
    layer = us.models.AttentionLayer.random(32, 4, 4, seed=1)

    def target(X):
        far = np.arange(X.shape[1])[::-1]
        parts = [softmax(scores(X, W) + table[far]) for W, table in zip(layer.W, tables, strict=True)]
        return sum(np.einsum("bn,bnd->bd", a, X) @ P.T for a, P in zip(parts, layer.P, strict=True))

    return target


def mixed(X):
    """Heads with and without rotary positions."""
    usual = {"residual": False, "bias": False, "kv_groups": 1, "scale": 2.0}
    turning = us.models.AttentionLayer.random(32, 2, 8, seed=1, positions=ROPE, **usual)
    return turning(X) + us.models.AttentionLayer.random(32, 2, 8, seed=2, **usual)(X)


def gated(X):
    """A gate of the last token on what heads write."""
    layer = us.models.AttentionLayer.random(32, 4, 8, seed=1, positions=ROPE, kv_groups=2, scale=2.0)
    gate = np.random.default_rng(3).standard_normal((32, 32)) / 6
    return layer(X) * expit(X[:, -1] @ gate)


@pytest.mark.parametrize(
    "target",
    [biased(np.random.default_rng(0).standard_normal((4, 2000))), mixed, gated],
    ids=["learned tables", "heads with and without positions", "gates"],
)
def test_other_positions_stay_outside(target):
    found = us.diagnose(us.oracle(target, 32, outputs=32))
    assert (found.family, found.code, found.learner) == ("outside", "order", None)


def test_positions_beside_a_layer_norm_stay_outside():
    layer = us.models.AttentionLayer.random(16, 2, 8, norm="pre", residual=True, positions=ROPE, scale=2.0)
    found = us.diagnose(us.oracle(layer))
    assert found.learner is None
    assert "LayerNorm" in found.reasons[0]


def test_a_tiny_bias_per_distance_behind_a_norm_is_no_causal_mask():
    """Heads of one layer had been told apart for 17 s."""
    layer = us.models.AttentionLayer.random(
        16, 2, 8, norm="pre", residual=True, positions=us.models.Alibi(np.array([1e-8, 3e-8])), seed=1
    )
    found = us.diagnose(us.oracle(layer))
    assert (found.family, found.code, found.learner) == ("outside", "order", None)


@pytest.mark.parametrize("norm", ["pre", "rms"])
@pytest.mark.parametrize("size", [1e-6, 1e-9])
def test_tiny_positions_that_are_added_behind_a_norm_are_no_causal_mask(norm, size):
    """They were taken for a stack, and its learner asked 53,123 queries at d = 64."""
    layer = us.models.AttentionLayer.random(16, 2, 8, norm=norm, residual=True, seed=1)
    places = size * np.random.default_rng(0).standard_normal((64, 16))
    placed = us.oracle(lambda X: layer(X + places[: X.shape[1]]) - places[X.shape[1] - 1], 16, outputs=16)
    found = us.diagnose(placed)
    assert (found.family, found.code, found.learner) == ("outside", "order", None)
    assert "positions" in found.reasons[0]
