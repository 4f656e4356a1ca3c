"""Layers with a LayerNorm behind or before attention."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from tests.weights import minilm_layer
from unsoftmax.models.layer_distance import layer_gaps

Layer = us.models.AttentionLayer


def recovered(layer, preset="lean", dtype="float64", seed=0, norm="auto", **rest):
    target = layer if dtype == "float64" else layer.astype(dtype)
    learner = us.learners.AttentionLayer(preset=preset, norm=norm)
    return us.recover(us.oracle(target, dtype=dtype, **rest), learner, seed=seed)


def ratio(recovery, layer):
    unknowns = us.theory.attention_layer_unknowns(layer.dim, layer.heads, layer.head_dim)
    return recovery.usage.billed * layer.dim / unknowns


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("preset", "dtype", "error"), [("lean", "float64", 5e-9), ("robust", "float32", 1e-2)])
def test_norm_after_attention(preset, dtype, error, seed):
    layer = Layer.random(64, 4, norm="post", residual=True, bias=seed > 1, seed=seed)
    model = recovered(layer, preset, dtype, seed).model
    gaps = layer_gaps(model, layer)
    assert (model.norm, model.residual, model.heads) == ("post", True, 4)
    assert gaps["W"] < error
    assert gaps["gamma"] < (1e-12 if dtype == "float64" else 1e-5)
    assert abs(model.eps / layer.eps - 1) < (1e-6 if dtype == "float64" else 1e-2)


def test_norm_after_attention_without_residual_hides_the_scale():
    layer = Layer.random(16, 2, norm="post", residual=False, seed=1)
    with pytest.raises(us.errors.NotIdentifiable, match="scale"):
        recovered(layer)


def test_a_norm_after_attention_needs_far_tokens():
    layer = Layer.random(16, 2, norm="post", residual=True, seed=1)
    with pytest.raises(us.errors.DomainError, match="max_norm"):
        recovered(layer, max_norm=1e6)


@pytest.mark.parametrize("gamma", [np.linspace(0.2, 3, 16), -np.linspace(0.2, 3, 16)])
def test_signs_of_gamma(gamma):
    base = Layer.random(16, 2, norm="post", residual=True, seed=2)
    parts = {name: getattr(base, name) for name in ("K", "Q", "c", "O", "V", "constant", "beta", "eps")}
    layer = Layer(**parts, gamma=gamma, residual=True, norm="post")
    assert us.models.distance(recovered(layer).model, layer) < 1e-8


@pytest.mark.long
@pytest.mark.parametrize("index", range(6))
def test_every_trained_layer_before_its_norm(index):
    layer = minilm_layer(index, "post")
    recovery = recovered(layer, seed=index)
    gaps = layer_gaps(recovery.model, layer)
    assert gaps["W"] < 2e-8
    assert gaps["gamma"] < 1e-12
    assert ratio(recovery, layer) < 1.5
