"""Trained layers: MiniLM against itself, against the same network in int8, and against a fine-tuned copy."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from tests.weights import LAYERS, int8, minilm_layer, tuned

EVERY = [0, *(pytest.param(layer, marks=pytest.mark.long) for layer in range(1, LAYERS))]


def served(layer: us.models.AttentionLayer) -> us.oracles.Oracle:
    """The layer as PyTorch computes it, in float32."""
    return us.adapters.torch_module(layer.astype("float32").to_torch())


@pytest.mark.long
@pytest.mark.parametrize("layer", range(LAYERS))
def test_the_same_layer_is_the_same(layer: int) -> None:
    pytest.importorskip("torch")
    reference = minilm_layer(layer)
    result = us.compare(served(reference), reference)
    assert result.verdict == "same"
    assert result.detectable < 1e-3


@pytest.mark.parametrize("layer", EVERY)
def test_the_int8_network_is_named_by_its_format(layer: int) -> None:
    pytest.importorskip("torch")
    result = us.compare(served(minilm_layer(layer, tensors=int8())), minilm_layer(layer))
    assert (result.verdict, result.format) == ("format", "int8 per row")


@pytest.mark.long
@pytest.mark.parametrize("layer", range(LAYERS))
def test_the_fine_tuned_network_is_a_dense_change_of_known_size(layer: int) -> None:
    pytest.importorskip("torch")
    reference, target = minilm_layer(layer), minilm_layer(layer, tensors=tuned())
    result = us.compare(served(target), reference)
    assert result.verdict == "dense"
    assert result.heads == tuple(range(reference.heads))
    norms = np.linalg.norm(target.W - reference.W, axis=(1, 2)) / np.linalg.norm(reference.W, axis=(1, 2))
    scores = result.evidence["scores"]
    covered = [scores[str(h)]["low"] <= size <= scores[str(h)]["high"] for h, size in enumerate(norms)]
    assert sum(covered) >= reference.heads - 1
    M, M0 = target.P.sum(axis=0), reference.P.sum(axis=0)
    values = result.evidence["values"]
    assert values["low"] <= np.linalg.norm(M - M0) / np.linalg.norm(M0) <= values["high"]
