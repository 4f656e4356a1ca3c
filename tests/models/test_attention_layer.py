"""The attention layer: its formula, its files, what it forgets, and its form as projections."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from unsoftmax.models.attention_layer import layer_norm

Layer = us.models.AttentionLayer


def by_hand(layer, X):
    """The docstring's formula, written out for one sequence (N, d)."""
    norm = lambda x: layer_norm(x, layer.eps) * layer.gamma + layer.beta  # noqa: E731
    seen = norm(X) if layer.norm == "pre" else X
    y = layer.constant.copy()
    for W, c, P in zip(layer.W, layer.c, layer.P, strict=True):
        scores = seen @ (W @ seen[-1] + c)
        weights = np.exp(scores - scores.max())
        y += P @ (weights @ seen) / weights.sum()
    y = y + X[-1] if layer.residual else y
    return norm(y) if layer.norm == "post" else y


@pytest.mark.parametrize("norm", [None, "pre", "post"])
@pytest.mark.parametrize("residual", [False, True])
def test_answers_follow_the_formula(norm, residual):
    layer = Layer.random(8, 2, norm=norm, residual=residual, seed=3)
    X = np.random.default_rng(0).standard_normal((5, 4, 8))
    assert np.allclose(layer(X), [by_hand(layer, x) for x in X], rtol=1e-12, atol=1e-12)
    assert layer(X).shape == (5, layer.outputs)


@given(counts=st.lists(st.integers(1, 5), min_size=3, max_size=3))
@settings(max_examples=20, deadline=None)
def test_counts_are_copies(counts):
    layer = Layer.random(6, 2, outputs=4, seed=1)
    X = np.random.default_rng(2).standard_normal((1, 3, 6))
    copies = np.repeat(X[0], counts, axis=0)[None]
    assert np.allclose(layer(X, np.array([counts])), layer(copies), rtol=1e-12)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_canonical_form_is_the_same_function(norm):
    layer = Layer.random(8, 2, norm=norm, residual=True, seed=4)
    X = np.random.default_rng(0).standard_normal((5, 4, 8))
    assert np.allclose(layer.canonical()(X), layer(X), rtol=1e-12, atol=1e-13)
    assert us.models.distance(layer.canonical(), layer) < 1e-12


def test_distance_ignores_the_order_of_heads_and_sees_every_parameter():
    layer = Layer.random(8, 2, seed=0)
    turned = Layer(*(np.asarray(p)[::-1] for p in (layer.K, layer.Q, layer.c, layer.O, layer.V)), layer.constant)
    assert us.models.distance(turned, layer) == 0
    parts = {name: getattr(layer, name) for name in ("K", "Q", "c", "O", "V", "constant")}
    for name, value in parts.items():
        changed = Layer(**{**parts, name: value * 1.001})
        assert 1e-4 < us.models.distance(changed, layer) < 1e-2, name
    assert us.models.distance(Layer.random(8, 4, seed=0), layer) == np.inf


@pytest.mark.parametrize("norm", [None, "pre", "post"])
def test_saved_and_loaded(tmp_path, norm):
    layer = Layer.random(8, 2, norm=norm, residual=True, seed=4)
    layer.save(tmp_path / "layer.safetensors")
    again = us.models.load(tmp_path / "layer.safetensors")
    X = np.random.default_rng(0).standard_normal((5, 4, 8))
    assert again.norm == norm
    assert again.residual
    assert np.array_equal(again(X), layer(X))
    assert layer.astype("float32")(X).dtype == np.float32


def test_wrong_shapes_are_refused():
    layer = Layer.random(8, 2, seed=0)
    with pytest.raises(us.errors.InvalidArgument, match="`V` must have shape"):
        Layer(layer.K, layer.Q, layer.c, layer.O, layer.V[:, :, :5], layer.constant)
    with pytest.raises(us.errors.InvalidArgument, match="gamma"):
        Layer(layer.K, layer.Q, layer.c, layer.O, layer.V, layer.constant, gamma=np.ones(8))
    with pytest.raises(us.errors.InvalidArgument, match="residual"):
        Layer.random(8, 2, outputs=4, residual=True)
    with pytest.raises(us.errors.InvalidArgument, match="divide"):
        Layer.random(8, 3)


LAYERS = {
    "plain": Layer.random(12, 3, seed=1),
    "few heads": Layer.random(12, 2, 3, seed=1),
    "other outputs": Layer.random(12, 3, outputs=5, seed=1),
    "offset outside the keys": Layer(
        *(getattr(Layer.random(12, 3, 2, seed=1), name) for name in ("K", "Q")),
        np.random.default_rng(0).standard_normal((3, 12)),
        *(getattr(Layer.random(12, 3, 2, seed=1), name) for name in ("O", "V", "constant")),
    ),
    "residual": Layer.random(12, 3, residual=True, seed=1),
    "pre": Layer.random(12, 3, residual=True, norm="pre", seed=1),
    "post": Layer.random(12, 3, residual=True, norm="post", seed=1),
}


def every_position(layer, X):
    """Answers with each token in turn as the query token."""
    return np.stack([layer(np.concatenate([X, X[:, [i]]], axis=1), _last_uncounted(X)) for i in range(X.shape[1])], 1)


def _last_uncounted(X):
    # A query token that takes part only where it stands: its copy at the end weighs nothing against the original.
    counts = np.ones((len(X), X.shape[1] + 1))
    counts[:, -1] = 1e-300
    return counts


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_as_torch_module(name, dtype):
    torch = pytest.importorskip("torch")
    layer = LAYERS[name]
    module = layer.astype(dtype).to_torch()
    assert isinstance(module, torch.nn.MultiheadAttention) == (
        name in ("plain", "few heads", "offset outside the keys")
    )
    X = np.random.default_rng(0).standard_normal((5, 4, 12))
    tokens = torch.from_numpy(X.astype(dtype))
    with torch.no_grad():
        if isinstance(module, torch.nn.MultiheadAttention):
            answers = module(tokens, tokens, tokens, need_weights=False)[0]
        else:
            answers = module(tokens)
    assert str(answers.dtype).endswith(dtype)
    assert np.allclose(answers.numpy(), every_position(layer, X), atol=1e-12 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_as_onnx_file(tmp_path, name, dtype):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    layer = LAYERS[name]
    layer.astype(dtype).to_onnx(tmp_path / "layer.onnx")
    session = runtime.InferenceSession(str(tmp_path / "layer.onnx"), providers=["CPUExecutionProvider"])
    for N in (1, 4):
        X = np.random.default_rng(0).standard_normal((5, N, 12))
        (answers,) = session.run(None, {"tokens": X.astype(dtype)})
        assert answers.dtype == dtype
        assert np.allclose(answers, every_position(layer, X), atol=1e-7 if dtype == "float64" else 1e-5)
