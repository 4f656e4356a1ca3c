"""Attention layers as they are served: rotary and linear positions, shared keys, RMSNorm, QK-norm, sinks, caps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us

Layer, Rope, Alibi = us.models.AttentionLayer, us.models.Rope, us.models.Alibi


def layer(**rest):
    rest = {"norm": "rms", "residual": True, "kv_groups": 2, "positions": Rope.ladder(4), "seed": 3} | rest
    return Layer.random(16, 4, 4, **rest)


LAYERS = {
    "llama": layer(bias=False),
    "biases": layer(),
    "partial rotation": layer(positions=Rope.ladder(4, share=0.5)),
    "no norm": layer(norm=None),
    "sinks and window": layer(sinks=True, window=3),
    "qk norm": layer(qk_norm=True),
    "softcap": layer(softcap=2.0),
    "alibi": layer(positions=Alibi(2.0 ** -np.arange(1, 5))),
    "bias per distance": layer(positions=us.models.DistanceBias(np.random.default_rng(1).standard_normal((4, 3)))),
    "only a norm": layer(positions=None),
}
X = np.random.default_rng(0).standard_normal((5, 6, 16))


def turn(theta, distance):
    """Rotation of a key by -theta per step, pairs of rows (2j, 2j + 1)."""
    R = np.zeros((2 * len(theta), 2 * len(theta)))
    for j, t in enumerate(theta * distance):
        R[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = [[np.cos(t), np.sin(t)], [-np.sin(t), np.cos(t)]]
    return R


def by_hand(model, x):
    """One sequence (N, d), every score written out."""
    z = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + model.eps) * model.gamma if model.norm else x
    y = model.constant + (x[-1] if model.residual else 0.0)
    for h in range(model.heads):
        scores = []
        for i, token in enumerate(z):
            distance = len(z) - 1 - i
            k, q = model.K[h] @ token, model.Q[h] @ z[-1]
            if model.features is not None:
                k, q = k + model.features.key_bias[h], q + model.features.query_bias[h]
                if model.features.normed:
                    k = k / np.sqrt(k @ model.features.key_form[h] @ k + model.features.key_eps[h])
                    q = q / np.sqrt(q @ model.features.query_form[h] @ q + model.features.query_eps[h])
            if isinstance(model.positions, Rope):
                n = 2 * len(model.positions.frequencies)
                k = np.concatenate([turn(model.positions.frequencies, distance) @ k[:n], k[n:]])
            s = k @ q + model.c[h] @ token
            if isinstance(model.positions, Alibi):
                s -= model.positions.slopes[h] * distance
            if isinstance(model.positions, us.models.DistanceBias):
                s += model.positions.table[h, min(distance, 2)]
            s = model.softcap * np.tanh(s / model.softcap) if model.softcap else s
            scores.append(-np.inf if model.window and distance >= model.window else s)
        w = np.exp(scores)
        y = y + model.P[h] @ (w @ z) / (w.sum() + (np.exp(model.sinks[h]) if model.sinks is not None else 0.0))
    return y


@pytest.mark.parametrize("name", LAYERS)
def test_answers_follow_the_formula(name):
    assert np.allclose(LAYERS[name](X), [by_hand(LAYERS[name], x) for x in X], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_saved_canonical_and_at_no_distance(name, tmp_path):
    model = LAYERS[name]
    model.save(tmp_path / "layer.safetensors")
    again = us.models.load(tmp_path / "layer.safetensors")
    assert np.array_equal(again(X), model(X))
    assert again.kv_groups == 2
    assert type(again.positions) is type(model.positions)
    assert np.allclose(model.canonical()(X), model(X), rtol=1e-12, atol=1e-13)
    assert us.models.distance(model.canonical(), model) < 1e-12
    assert us.models.equivalent(again, model)
    assert model.astype("float32")(X).dtype == np.float32


@pytest.mark.parametrize("name", LAYERS)
def test_every_parameter_shows_in_the_distance(name):
    model = LAYERS[name]
    for part in ("K", "Q", "O", "V", "constant"):
        changed = replace(model, **{part: getattr(model, part) * 1.001})
        if not getattr(model, part).any():
            continue
        assert 1e-5 < us.models.distance(changed, model) < 1e-2, part
        assert not us.models.equivalent(changed, model), part


@given(turn=st.floats(0, 6), size=st.floats(0.1, 10), seed=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_one_complex_number_per_pair_does_not_show(turn, size, seed):
    """The gauge of rotary positions: keys of a pair times w, queries divided by its conjugate."""
    model = layer(bias=True, seed=seed)
    w = size * np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    K, Q, f = model.K.copy(), model.Q.copy(), model.features
    bk, bq = f.key_bias.copy(), f.query_bias.copy()
    K[:, :2], bk[:, :2] = w @ K[:, :2], bk[:, :2] @ w.T
    Q[:, :2], bq[:, :2] = np.linalg.inv(w).T @ Q[:, :2], bq[:, :2] @ np.linalg.inv(w)
    other = replace(model, K=K, Q=Q, features=us.models.Features(bk, bq))
    assert us.models.equivalent(other, model)
    assert us.models.distance(other, model) < 1e-12


def test_ladders_and_score_matrices():
    rope = Rope.ladder(8, 5e5, 0.5)
    assert rope.base == pytest.approx(5e5)
    assert Rope(np.array([1.0, 0.3, 0.01])).base is None
    model = layer(bias=False)
    assert np.array_equal(model.W_at(0), model.W)
    z = X[0, 0] / np.sqrt((X[0, 0] ** 2).mean() + model.eps) * model.gamma
    q = X[0, 1] / np.sqrt((X[0, 1] ** 2).mean() + model.eps) * model.gamma
    scores = model.scores(np.stack([z, z, z, q])[None])[:, 0]
    assert np.allclose(scores[:, 0], np.einsum("d,hde,e->h", z, model.W_at(3), q))


def test_wrong_parts_are_refused():
    model = layer()
    with pytest.raises(us.errors.InvalidArgument, match="frequencies"):
        replace(model, positions=Rope(np.ones(3)))
    with pytest.raises(us.errors.InvalidArgument, match="slopes"):
        replace(model, positions=Alibi(np.ones(3)))
    with pytest.raises(us.errors.InvalidArgument, match="no beta"):
        replace(model, beta=np.zeros(16))
    with pytest.raises(us.errors.InvalidArgument, match="copies"):
        model(X, np.ones((5, 6)))
    with pytest.raises(us.errors.InvalidArgument, match="divide the heads"):
        layer(kv_groups=3)


def every_position(model, X):
    """Answers with each token as the last of a sequence."""
    return np.stack([model(X[:, : i + 1]) for i in range(X.shape[1])], axis=1)


@pytest.mark.parametrize("name", LAYERS)
def test_as_torch_module(name):
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        answers = LAYERS[name].to_torch()(torch.from_numpy(X)).numpy()
    assert np.allclose(answers, every_position(LAYERS[name], X), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_as_onnx_file(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    LAYERS[name].to_onnx(tmp_path / "layer.onnx")
    session = runtime.InferenceSession(str(tmp_path / "layer.onnx"), providers=["CPUExecutionProvider"])
    (answers,) = session.run(None, {"tokens": X})
    assert np.allclose(answers, every_position(LAYERS[name], X), rtol=1e-7, atol=1e-8)


def test_norms_of_keys_without_an_eps_leave_empty_tokens_empty():
    """They had been 0 / 0."""
    layer = us.models.AttentionLayer.random(8, 2, seed=0, qk_norm=True, bias=False)
    assert layer.features is not None
    bare = replace(layer, features=replace(layer.features, key_eps=np.zeros(2), query_eps=np.zeros(2)))
    tokens = np.zeros((1, 3, 8))
    tokens[0, 1] = 1.0
    answer = bare(tokens)
    assert np.isfinite(answer).all()
    assert np.allclose(answer, bare(tokens[:, :1]) * 2 / 3 + bare(np.ones((1, 1, 8))) / 3)
