"""Layers whose heads write into each other's directions: ranks that add up to more than the outputs, mixed weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import unsoftmax as us

Layer = us.models.AttentionLayer


def mixed(layer, share=0.2):
    """The same layer with weights a'_h = (1 - share) a_h + share a_(h-1): value maps of twice the rank."""
    O = np.concatenate([(1 - share) * layer.O, share * np.roll(layer.O, -1, axis=0)], axis=2)
    return replace(layer, O=O, V=np.concatenate([layer.V, np.roll(layer.V, -1, axis=0)], axis=1))


@pytest.mark.parametrize("preset", ["lean", "balanced", "robust"])
@pytest.mark.parametrize(("d", "heads", "rank"), [(32, 4, 8), (32, 8, 4), (64, 8, 8)])
def test_heads_that_mix_their_weights_are_heads_of_twice_the_rank(d, heads, rank, preset):
    """Neighbours write into each other's ranges; groups of heads that do not are read together. They had been refused,
    with the advice to take the preset that was given."""
    layer = mixed(Layer.random(d, heads, rank, residual=True, seed=d))
    recovery = us.recover(us.oracle(layer), us.learners.AttentionLayer(preset=preset))
    assert us.models.distance(recovery.model, layer) <= min(1e-8, recovery.certificate.stated_error)


def test_heads_that_mix_their_weights_before_a_norm_are_refused_with_a_reason_that_may_apply():
    layer = mixed(Layer.random(16, 4, 4, norm="post", residual=True, seed=1))
    with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable), match="more directions than the answers"):
        us.recover(us.oracle(layer), us.learners.AttentionLayer(preset="robust"))
