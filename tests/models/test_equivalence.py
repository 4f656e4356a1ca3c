"""Functional equality decided from parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from unsoftmax.models import MultiHead, ReluNetwork, SingleHead, Transformer, equivalent


def sequences(d: int, length: int, seed: int = 0, batch: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, length, d))


def test_proposition_7_1_equal_scores_show_only_the_sum_of_values() -> None:
    W = np.random.default_rng(0).standard_normal((4, 4))
    v = np.eye(4)
    first = MultiHead(np.stack([W, W]), np.stack([v[0], v[1]]))
    second = MultiHead(np.stack([W, W]), np.stack([v[0] + v[2], v[1] - v[2]]))
    X = sequences(4, 6)
    assert np.allclose(first(X), second(X), atol=1e-12)
    assert us.models.distance(first, second) > 0.5
    assert equivalent(first, second)
    assert us.models.distance(first.canonical(), second.canonical()) < 1e-15


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
