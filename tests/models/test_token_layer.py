"""One-layer language models: weights and circuits, what no choice of a basis changes, files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import unsoftmax as us
from tests.one_layer import Weights
from unsoftmax.models import TokenLayer


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("centred", [False, True])
def test_it_answers_as_its_weights_do(length: int, centred: bool) -> None:
    weights = Weights.random(30, 8, 2, 3, 6, biases=True)
    ids = np.random.default_rng(0).integers(0, 30, (20, length))
    layer = TokenLayer.of_weights(*weights.parts, centred=centred)
    expected = weights.log_probabilities(ids) if centred else weights(ids)
    np.testing.assert_allclose(layer(ids), expected, atol=1e-11)


def test_circuits_are_those_of_the_weights() -> None:
    weights = Weights.random(30, 8, 2, 3, 6, biases=True)
    layer = TokenLayer.of_weights(*weights.parts)
    for h in range(2):
        keys, queries = weights.E + weights.positions[2], weights.E + weights.positions[4]
        scores = (keys @ weights.W_K[h]) @ (queries @ weights.W_Q[h] + weights.b_Q[h]).T / np.sqrt(3)
        own = np.einsum("vk,vk->v", queries @ weights.W_K[h], queries @ weights.W_Q[h] + weights.b_Q[h]) / np.sqrt(3)
        np.testing.assert_allclose(layer.scores(h, key=2, query=4), scores - own, atol=1e-11)
        values = (weights.E - weights.E.mean(axis=0)) @ weights.W_V[h] @ weights.W_O[h] @ weights.U
        np.testing.assert_allclose(layer.values(h) @ np.linalg.pinv(layer.values(h)) @ values, values, atol=1e-9)


def test_attention_is_softmax_of_the_scores() -> None:
    layer = TokenLayer.random(8, 30, 2, 6)
    ids = np.array([[3, 4, 5]])
    scores = np.array([[layer.scores(h, j, 2)[ids[0, j], 5] for j in range(3)] for h in range(2)])
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(layer.attention(ids)[0], weights, atol=1e-13)


def changed(layer: TokenLayer, seed: int = 0) -> TokenLayer:
    """The same function in another basis, from another origin, heads in another order."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((layer.width, layer.width)))
    shift, order = rng.standard_normal(layer.width), rng.permutation(layer.heads)
    x = layer.embeddings - shift
    return TokenLayer(
        x @ Q,
        layer.positions @ Q,
        (Q.T @ layer.W @ Q)[order],
        ((layer.c + layer.W @ shift) @ Q)[order],
        (Q.T @ layer.P @ Q)[order],
        Q.T @ layer.basis,
        layer.origin + shift @ layer.basis,
    )


def test_distance_does_not_see_basis_origin_or_order_of_heads() -> None:
    layer = TokenLayer.random(8, 30, 3, 6)
    other = changed(layer)
    ids = np.random.default_rng(0).integers(0, 30, (9, 6))
    np.testing.assert_allclose(other(ids), layer(ids), atol=1e-11)
    assert us.models.distance(other, layer) <= 1e-12
    assert us.models.equivalent(other, layer)


@pytest.mark.parametrize("name", ["W", "P", "c", "positions", "embeddings"])
def test_distance_sees_every_part(name: str) -> None:
    weights = Weights.random(30, 8, 2, 3, 6, biases=True)
    layer = TokenLayer.of_weights(*weights.parts)
    value = getattr(layer, name)
    off = value + 1e-3 * np.random.default_rng(1).standard_normal(value.shape) * np.abs(value).mean()
    other = replace(layer, **{name: off})
    assert 1e-5 <= us.models.distance(other, layer) <= 1e-1
    assert not us.models.equivalent(other, layer)


def test_heads_that_share_their_scores_or_write_nothing_do_not_matter() -> None:
    layer = TokenLayer.random(8, 30, 2, 6)
    W, c = layer.W[[0, 0, 1, 1]], layer.c[[0, 0, 1, 1]]
    P = np.stack([0.25 * layer.P[0], 0.75 * layer.P[0], layer.P[1], 0 * layer.P[1]])
    more = replace(layer, W=W, c=c, P=P)
    assert us.models.equivalent(more, layer)
    assert us.models.distance(more, layer) == np.inf


def test_files_keep_it(tmp_path: Path) -> None:
    layer = TokenLayer.random(8, 30, 2, 6)
    layer.save(tmp_path / "layer.safetensors")
    again = us.models.load(tmp_path / "layer.safetensors")
    ids = np.array([[1, 2, 3]])
    assert (again(ids) == layer(ids)).all()


def test_ids_out_of_range_are_refused() -> None:
    layer = TokenLayer.random(8, 30, 2, 6)
    for ids in (np.array([[30]]), np.zeros((1, 7), int), np.zeros((1, 2))):
        with pytest.raises(us.errors.InvalidArgument):
            layer(ids)
