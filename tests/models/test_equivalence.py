"""Functional equality decided from parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from unsoftmax.models import AttentionLayer, MultiHead, ReluNetwork, SingleHead, TokenHead, Transformer, equivalent


def sequences(d: int, length: int, seed: int = 0, batch: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, length, d))


def test_proposition_7_1_equal_scores_show_only_the_sum_of_values() -> None:
    W = np.random.default_rng(0).standard_normal((4, 4))
    v = np.eye(4)
    first = MultiHead(np.stack([W, W]), np.stack([v[0], v[1]]))
    second = MultiHead(np.stack([W, W]), np.stack([v[0] + v[2], v[1] - v[2]]))
    X = sequences(4, 6)
    assert np.allclose(first(X), second(X), atol=1e-12)
    assert np.abs(first.v - second.v).max() > 0.5
    assert equivalent(first, second)
    assert us.models.distance(first, second) < 1e-15


def test_heads_that_show_in_no_answer_do_not_count_in_the_distance() -> None:
    target = MultiHead.random(4, 2, seed=3)
    padded = MultiHead(
        np.concatenate([target.W, target.W[:1], target.W[1:] + 1]),
        np.vstack([target.v[0] / 4, target.v[1], 0.75 * target.v[0], np.zeros(4)]),
    )
    assert us.models.distance(padded, target) < 1e-15
    assert us.models.distance(target, padded) < 1e-15
    assert us.models.distance(MultiHead(target.W[:1], target.v[:1]), padded) == np.inf


def test_length_two_is_not_enough() -> None:
    """{(W, v), (-W, u)} and {(W, v - u), (0, 2u)} agree on two tokens and differ on three."""
    rng = np.random.default_rng(1)
    W, v, u = rng.standard_normal((3, 3)), rng.standard_normal(3), rng.standard_normal(3)
    first = MultiHead(np.stack([W, -W]), np.stack([v, u]))
    second = MultiHead(np.stack([W, np.zeros((3, 3))]), np.stack([v - u, 2 * u]))
    assert np.allclose(first(sequences(3, 2)), second(sequences(3, 2)), atol=1e-12)
    assert np.abs(first(sequences(3, 3)) - second(sequences(3, 3))).max() > 1e-2
    assert not equivalent(first, second)


@settings(max_examples=30, deadline=None)
@given(heads=st.integers(0, 5), seed=st.integers(0, 1000), change=st.sampled_from(["none", "W", "v", "drop"]))
def test_decision_agrees_with_the_answers(heads: int, seed: int, change: str) -> None:
    """Split, shuffle and pad a model with zeros: the same function. Change it: not."""
    rng = np.random.default_rng(seed)
    model = MultiHead.random(4, heads, norm=2.0, seed=seed)
    W, v = [*model.W], [*model.v]
    if heads and change == "W":
        W[0] = W[0] + 1e-3
    elif heads and change == "v":
        v[-1] = v[-1] * 1.01
    elif heads and change == "drop":
        W, v = W[1:], v[1:]
    part = rng.standard_normal(4)
    if W:
        W, v = [*W, W[0]], [*v[:-1], v[-1], part]
        v[0] = v[0] - part
    ghost = rng.standard_normal((4, 4))
    W, v = [*W, ghost, ghost, ghost + 1], [*v, part, -part, np.zeros(4)]
    order = rng.permutation(len(W))
    other = MultiHead(np.array(W)[order], np.array(v)[order])
    same = change == "none" or heads == 0
    assert equivalent(model, other) is same
    assert equivalent(other, model) is same
    X = sequences(4, 5, seed)
    assert bool(np.allclose(model(X), other(X), atol=1e-10)) is same


def test_canonical_is_idempotent_and_may_be_empty() -> None:
    W = np.random.default_rng(2).standard_normal((3, 3))
    nothing = MultiHead(np.stack([W, W, 2 * W]), np.stack([np.ones(3), -np.ones(3), np.zeros(3)]))
    assert nothing.canonical().heads == 0
    assert not nothing.canonical()(sequences(3, 4)).any()
    some = MultiHead.random(3, 4, seed=3)
    once = some.canonical()
    assert us.models.distance(once.canonical(), once) == 0
    assert np.array_equal(once.canonical().W, once.W)


def test_single_head_and_multi_head_compare() -> None:
    head = SingleHead.random(4, seed=1)
    assert equivalent(head, MultiHead(head.W[None], head.v[None]))
    assert not equivalent(head, MultiHead(head.W[None] * 2, head.v[None]))
    assert equivalent(SingleHead(head.W, 0 * head.v), SingleHead(3 * head.W, 0 * head.v))
    with pytest.raises(us.errors.InvalidArgument, match="compared"):
        equivalent(head, ReluNetwork.random(4, 3))


def test_networks_modulo_order_scale_and_orientation() -> None:
    g = ReluNetwork.random(3, 4, bias=True, seed=4)
    scale = np.array([2.0, 0.5, 1.0, 3.0])
    same = ReluNetwork((g.A * scale)[:, ::-1], (g.w_o / scale)[::-1], (g.b * scale)[::-1], g.b_o)
    assert equivalent(g, same)
    # ReLU(u) = ReLU(-u) + u: a neuron turned round, its linear part kept.
    A, b = g.A.copy(), g.b.copy()
    A[:, 0], b[0] = -A[:, 0], -b[0]
    turned = ReluNetwork(A, g.w_o, b, g.b_o + g.w_o[0] * g.b[0], g.w_o[0] * g.A[:, 0])
    x = np.random.default_rng(0).standard_normal((20, 3))
    assert np.allclose(turned.of(x), g.of(x))
    assert equivalent(g, turned)
    assert not equivalent(g, ReluNetwork(A, g.w_o, b, g.b_o))


def test_transformers_need_equal_scores_unless_the_network_is_constant() -> None:
    t = Transformer.random(3, 5, seed=6)
    assert equivalent(t, Transformer(t.W, t.A, t.w_o))
    assert not equivalent(t, Transformer(t.W + 0.1, t.A, t.w_o))
    flat = np.zeros((3, 5))
    assert equivalent(Transformer(t.W, flat, t.w_o), Transformer(t.W + 0.1, flat, t.w_o))


def rebuilt(layer: AttentionLayer, seed: int) -> AttentionLayer:
    """The same function: heads reordered, one split in three, other factors, a head that does nothing."""
    rng = np.random.default_rng(seed)
    order = [*rng.permutation(layer.heads), 0, 0]
    K, Q, c, O, V = (part[order] for part in (layer.K, layer.Q, layer.c, layer.O, layer.V))
    change = rng.standard_normal((K.shape[1],) * 2)
    K, Q = np.linalg.inv(change).T @ K, change @ Q
    O = O.copy()
    O[-2:] = 0.25 * layer.O[0]
    O[order.index(0)] = 0.5 * layer.O[0]
    ghost = rng.standard_normal(Q[:1].shape)
    parts = ((K, K[:1]), (Q, ghost), (c, c[:1]), (O, 0 * O[:1]), (V, V[:1]))
    return replace(layer, **dict(zip("KQcOV", (np.concatenate(pair) for pair in parts), strict=True)))


@pytest.mark.parametrize("norm", [None, "pre"])
@pytest.mark.parametrize("residual", [False, True])
def test_layers_rebuilt_answer_alike(norm, residual) -> None:
    layer = AttentionLayer.random(6, heads=3, residual=residual, norm=norm, seed=2)
    other = rebuilt(layer, 3)
    assert other.heads == 6
    assert np.allclose(layer(sequences(6, 5)), other(sequences(6, 5)), atol=1e-12)
    assert equivalent(layer, other)
    assert equivalent(other, layer)


@pytest.mark.parametrize("name", ["K", "c", "O", "constant"])
def test_layers_that_differ_in_a_parameter_are_told_apart(name) -> None:
    layer = AttentionLayer.random(6, heads=3, seed=2)
    assert not equivalent(layer, replace(layer, **{name: getattr(layer, name) * 1.001}))
    assert not equivalent(layer, replace(layer, residual=True))
    assert not equivalent(layer, replace(layer, norm="pre"))


def test_layers_that_look_at_nothing_may_be_normed_in_any_way() -> None:
    layer = AttentionLayer.random(6, heads=2, residual=True, seed=2)
    blind = replace(layer, O=0 * layer.O)
    assert equivalent(blind, replace(blind, norm="pre", eps=1e-5))
    with pytest.raises(us.errors.InvalidArgument, match=r"us\.models\.distance"):
        equivalent(layer, replace(layer, norm="post"))


def test_token_heads_modulo_shifts_of_columns() -> None:
    head = TokenHead.random(9, 3, seed=1)
    K, Q = head.scores
    shift = np.random.default_rng(0).standard_normal((9, 1))
    shifted = TokenHead((np.hstack([K, np.ones((9, 1))]), np.hstack([Q, shift])), head.values)
    ids = np.random.default_rng(1).integers(0, 9, (30, 4))
    assert np.allclose(head(ids), shifted(ids), atol=1e-12)
    assert equivalent(head, shifted)
    assert not equivalent(head, TokenHead((1.001 * K, Q), head.values))
    assert not equivalent(head, TokenHead((K, Q), 1.001 * head.values))
    assert not equivalent(head, TokenHead((K, Q), head.values, forbidden=np.array([2])))
    flat = np.ones(9)
    assert equivalent(TokenHead((K, Q), flat), TokenHead((2 * K, Q), flat))


def test_what_is_not_decided_is_said() -> None:
    behind = us.models.AttentionBehind(np.eye(3))
    with pytest.raises(us.errors.InvalidArgument, match=r"us\.models\.distance"):
        equivalent(behind, behind)


def test_canonical_order_of_heads_of_one_size() -> None:
    W, v = np.stack([np.eye(3), np.eye(3)[::-1]]), np.ones((2, 3))
    one, other = us.models.MultiHead(W, v).canonical(), us.models.MultiHead(W[::-1], v).canonical()
    assert np.array_equal(one.W, other.W)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_equivalence_at_sizes_whose_squares_leave_float64(size) -> None:
    plain = us.models.MultiHead.random(4, 2, seed=1)
    one, other = (us.models.MultiHead(size * k * plain.W, plain.v) for k in (1.0, 2.0))
    assert us.models.equivalent(one, one)
    assert not us.models.equivalent(one, other)
