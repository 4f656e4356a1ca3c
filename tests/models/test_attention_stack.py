"""Stacks: counts, causality, canonical form, files, PyTorch, and what unknown networks forbid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from unsoftmax.models import AttentionStack

KINDS = [
    {"norm": "layer"},
    {"norm": "rms", "causal": True},
    {"norm": None},
    {"norm": "layer", "causal": True, "network": 7},
    {"norm": "rms", "network": 7, "activation": "silu", "gated": True, "final_norm": True},
    {"norm": "layer", "network": 7, "activation": "relu", "final_norm": True},
]


def stack(**kind):
    return AttentionStack.random(6, 3, 2, seed=3, **kind)


def tokens(n=5, seed=0):
    return np.random.default_rng(seed).standard_normal((4, n, 6))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_counts_are_repetitions(kind) -> None:
    model, X = stack(**kind), tokens(3)
    repeated = model(np.repeat(X, [2, 1, 3], axis=1))
    np.testing.assert_allclose(model(X, np.tile([2, 1, 3], (4, 1))), repeated, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_canonical_is_the_same_function(kind) -> None:
    model, X = stack(**kind), tokens()
    np.testing.assert_allclose(model.canonical()(X), model(X), rtol=1e-11, atol=1e-11)
    assert us.models.distance(model.canonical(), model) <= 1e-14


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_torch_module_answers_alike(kind) -> None:
    torch = pytest.importorskip("torch")
    model, X = stack(**kind), tokens()
    with torch.no_grad():
        answers = model.to_torch()(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(answers, model.states(X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [*KINDS, {"norm": "layer", "unknown": True}], ids=str)
def test_files(kind, tmp_path) -> None:
    unknown = kind.pop("unknown", False)
    model = stack(**kind)
    model = replace(model, networks="unknown") if unknown else model
    model.save(tmp_path / "stack.safetensors")
    again = us.models.load(tmp_path / "stack.safetensors")
    for name, value in model.parameters().items():
        assert np.array_equal(again.parameters()[name], value), name
    assert us.models.distance(again, model) == 0


def test_a_causal_stack_sees_no_later_token() -> None:
    model, X = stack(causal=True), tokens(4)
    np.testing.assert_allclose(model.states(X)[:, :3], model.states(X[:, :3]), rtol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_order_of_the_context_only_matters_to_causal_stacks(causal) -> None:
    model, X = stack(causal=causal), tokens(4)
    gap = np.abs(model(X) - model(X[:, [1, 0, 2, 3]])).max()
    assert (gap > 1e-6) == causal


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), causal=st.booleans(), network=st.sampled_from([0, 5]))
def test_long_tokens_attend_as_one_wide_layer(seed, causal, network) -> None:
    """The theorem of the learner: at infinity the stack is the sum of all heads of all layers."""
    model = AttentionStack.random(6, 3, 2, norm="layer", causal=causal, network=network, seed=seed)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2, 4, 6)) * 2.0**60
    X[:, -1] *= 2.0**-33
    alone = X[:, -1:]
    written = (model(X) - X[:, -1]) - (model(alone) - alone[:, 0])
    seen, P = model.normalised(X), np.concatenate([layer.P for layer in model.layers])
    mixed = np.einsum("bhn,bnd->bhd", model.attention(X), seen) - seen[:, None, -1]
    np.testing.assert_allclose(written, np.einsum("hed,bhd->be", P, mixed), atol=1e-5)


def test_unknown_networks_refuse_the_call_and_keep_the_heads() -> None:
    model = replace(stack(network=5), networks="unknown")
    with pytest.raises(us.errors.NotIdentifiable, match="unknown functions"):
        model(tokens())
    assert model.attention(tokens()).shape == (4, 6, 5)
    np.testing.assert_allclose(model.attention(tokens()).sum(axis=2), 1.0, rtol=1e-12)
    assert us.models.distance(model, stack(network=5)) == 0


def test_equivalence() -> None:
    model = stack()
    turned = replace(model, layers=tuple(_turned(layer) for layer in model.layers))
    assert us.models.equivalent(model, turned)
    assert us.models.equivalent(model, model.canonical())
    assert not us.models.equivalent(model, replace(model, layers=model.layers[::-1]))
    assert not us.models.equivalent(model, replace(model, causal=True))
    with pytest.raises(us.errors.InvalidArgument, match="networks"):
        us.models.equivalent(stack(network=4), stack(network=4))


def _turned(layer):
    parts = {name: getattr(layer, name)[::-1] for name in ("K", "Q", "c", "O", "V")}
    return replace(layer, **parts)


def test_float32_keeps_its_frame() -> None:
    model = stack(norm="rms", causal=True, network=4).astype("float32")
    assert (model.dtype, model.causal, model.norm) == (np.float32, True, "rms")
    assert model(tokens() * 1e25).dtype == np.float32
    assert np.isfinite(model.attention(tokens() * 1e25)).all()


def test_wrong_parts_are_named() -> None:
    model = stack()
    with pytest.raises(us.errors.InvalidArgument, match="without norm"):
        replace(model, layers=(us.models.AttentionLayer.random(6, 2, residual=True),))
    with pytest.raises(us.errors.InvalidArgument, match="one per layer"):
        replace(model, networks=stack(network=3).networks[:1])
    with pytest.raises(us.errors.InvalidArgument, match="final norm"):
        replace(model, gamma=np.ones(6))


def test_the_stack_inside_a_torch_encoder() -> None:
    torch = pytest.importorskip("torch")
    from tests.models.encoders import from_encoder

    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(
        8, 2, 12, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    norm = torch.nn.LayerNorm(8, dtype=torch.float64)
    encoder = torch.nn.TransformerEncoder(block, 2, norm=norm, enable_nested_tensor=False).eval()
    with torch.no_grad():
        for part in encoder.parameters():
            part.add_(0.1 * torch.randn_like(part))
        X = torch.randn(3, 4, 8, dtype=torch.float64)
        answers = encoder(X).numpy()
    np.testing.assert_allclose(from_encoder(encoder).states(X.numpy()), answers, rtol=1e-10, atol=1e-11)
