"""Output layers as references: the same row space, another one, and what changed by which rank."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import unsoftmax as us
from tests.language_models import Practice
from unsoftmax.models import OutputLayer

V, D = 300, 24


def reference(model: Practice, *, centred: bool = False) -> OutputLayer:
    return OutputLayer.of_unembedding(model.U * model.gamma, centred=centred)


def changed(model: Practice, rank: int, size: float) -> Practice:
    """The same model with an unembedding changed by `rank` directions, `size` of its norm."""
    rng = np.random.default_rng(5)
    other = copy.copy(model)
    step = rng.standard_normal((V, rank)) @ rng.standard_normal((rank, D))
    other.U = model.U + size * np.linalg.norm(model.U) / np.linalg.norm(step) * step
    return other


ACCESS = {
    "logits": lambda m: us.logit_oracle(m, V),
    "log-probabilities": lambda m: us.logit_oracle(m.log_probabilities, V, shows="log-probabilities"),
    "undeclared log-probabilities": lambda m: us.logit_oracle(m.log_probabilities, V),
    "chosen": lambda m: us.logit_oracle(m.chosen, V, shows="chosen", top=20),
    "float32": lambda m: us.logit_oracle(lambda ids: m(ids).astype("float32").astype(float), V),
    "4 decimals": lambda m: us.logit_oracle(lambda ids: np.round(m(ids), 4), V),
    "capped": lambda m: us.logit_oracle(lambda ids: 30 * np.tanh(m(ids) / 30), V),
}


@pytest.mark.parametrize("access", ACCESS)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_output_layer(access: str, seed: int) -> None:
    model = Practice(D, V, seed)
    oracle = ACCESS[access](model)
    learned = us.recover(oracle, us.learners.OutputLayer(), seed=seed).model
    known = [learned] if access == "capped" else [learned, reference(model)]
    for layer in known:
        found = us.compare(oracle, layer, seed=seed + 7)
        assert found.verdict == "same", found
        assert found.usage.phases["compare"] >= 24


@pytest.mark.parametrize("access", [name for name in ACCESS if name != "capped"])
def test_what_changed(access: str) -> None:
    model = Practice(D, V)
    size = {"float32": 3e-3, "4 decimals": 1e-2}.get(access, 1e-6)
    for rank, verdict in ((1, "low rank"), (3, "low rank"), (D, "dense")):
        found = us.compare(ACCESS[access](changed(model, rank, size)), reference(model))
        assert found.verdict == verdict, found
        assert found.rank == (rank if verdict == "low rank" else None)
        assert found.detectable < size
    other = us.compare(ACCESS[access](Practice(D, V, 9)), reference(model))
    assert other.verdict == "different"


def test_another_final_norm_is_seen_where_the_ellipsoid_is_known() -> None:
    model = Practice(12, 100)
    oracle = us.logit_oracle(model, 100)
    layer = us.recover(oracle, us.learners.OutputLayer(gauge="rotation")).model
    assert us.compare(oracle, layer).verdict == "same"
    other = copy.copy(model)
    other.gamma = model.gamma * np.linspace(0.9, 1.1, 12)
    found = us.compare(us.logit_oracle(other, 100), layer)
    assert found.verdict == "unexplained"
    assert "final norm" in found.sentence


def test_answers_at_random_are_named() -> None:
    model, rng = Practice(D, V), np.random.default_rng(0)
    oracle = us.logit_oracle(lambda ids: model(ids) + 1e-3 * rng.standard_normal((len(ids), V)), V)
    assert us.compare(oracle, reference(model)).verdict == "stochastic"


def test_what_does_not_fit_is_refused_by_name(tmp_path) -> None:
    layer = reference(Practice(D, V))
    with pytest.raises(us.errors.InvalidArgument, match="vocabulary"):
        us.compare(us.logit_oracle(Practice(D, 100), 100), layer)
    with pytest.raises(us.errors.InvalidArgument, match="language model"):
        us.compare(us.oracle(us.models.SingleHead.random(4, seed=0)), layer)
    with pytest.raises(us.errors.InvalidArgument, match=r"us\.compare"):
        us.Monitor(layer).step(us.logit_oracle(Practice(D, V), V))
    layer.save(tmp_path / "layer.safetensors")
    assert us.compare(us.logit_oracle(Practice(D, V), V), tmp_path / "layer.safetensors").verdict == "same"


def test_a_whole_one_layer_model_is_compared_as_a_function() -> None:
    model = us.models.TokenLayer.random(8, 30, 1, 6)
    oracle = us.logit_oracle(model, 30, max_length=6)
    assert us.compare(oracle, model).verdict == "same"
    assert us.compare(oracle, us.models.TokenLayer.random(8, 30, 1, 6, seed=1), explain=False).differs
