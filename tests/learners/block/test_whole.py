"""The attention of whole blocks and one-layer language models, from behind their networks."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from tests.llamas import attention_of, hidden, log_probabilities, stream
from unsoftmax.learners.core.base import RELATIVE_ERROR
from unsoftmax.learners.rotary.presets import PLANS
from unsoftmax.serving.llama import Llama

SHOWN = {"logits": lambda model: model.logits, "hidden": hidden, "stream": stream, "log-probs": log_probabilities}


def asked(model, shown="logits", **rest):
    fn = SHOWN[shown](model)
    return us.oracle(fn, model.dim, outputs=model.dim if shown in ("hidden", "stream") else model.vocabulary, **rest)


def small(seed=1, layers=1):
    return Llama.random(32, 48, layers, 4, 2, seed=seed)


@pytest.mark.parametrize("shown", SHOWN)
def test_heads_are_read_from_behind_a_network(shown):
    model = small()
    recovery = us.recover(asked(model, shown), us.learners.AttentionLayer(), seed=1)
    found, true = recovery.model, attention_of(model)
    error = us.models.distance(found, true)
    bound = next(claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
    assert error <= min(bound, 1e-4)
    assert recovery.certificate.holds
    assert (found.heads, found.kv_groups, found.final_norm) == (4, 2, shown != "stream")
    assert found.positions.base == pytest.approx(1e4, rel=1e-9)
    assert found.layer.eps == pytest.approx(1e-5, rel=1e-6)
    assert any("network" in note for note in recovery.notes)


@pytest.mark.long
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shown", ["logits", "hidden", "stream"])
def test_a_one_layer_llama_to_a_millionth(shown, tied):
    model = Llama.random(seed=5)
    model = model if not tied else Llama(*(model.embeddings, model.blocks, model.final_norm, model.embeddings, 8, 2))
    recovery = us.recover(asked(model, shown), us.learners.AttentionLayer(), seed=2)
    assert us.models.distance(recovery.model, attention_of(model)) <= 1e-6


def test_the_bill_is_the_closed_form_where_nothing_is_repeated():
    bills = [
        us.recover(asked(small()), us.learners.AttentionLayer(), seed=s, verify=False).usage.phases for s in range(3)
    ]
    plain = [phases for phases in bills if "repair" not in phases]
    assert plain  # last digits decide which draws are repeated, and most are not
    for phases in plain:
        assert phases["values"] == us.theory.block_values_queries(32, 16)
        assert phases["main"] == PLANS["balanced"].block_queries(32, 4, 2, 8, final_norm=True)


def test_coarse_answers_are_refused_with_what_they_leave():
    model = small()
    coarse = us.oracle(lambda X: model.logits(X).astype(np.float32), 32, outputs=48, dtype="float32")
    with pytest.raises(us.errors.NotIdentifiable, match="float64"):
        us.recover(coarse, us.learners.AttentionLayer())


def test_two_layers_are_not_taken_for_one():
    with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable, us.errors.DomainError)):
        us.recover(asked(small(layers=2)), us.learners.AttentionLayer(), seed=1)


def test_fewer_answers_than_dimensions_are_refused():
    model = small()
    few = us.oracle(lambda X: model.logits(X)[:, :20], 32, outputs=20)
    with pytest.raises(us.errors.NotIdentifiable, match="directions of the stream"):
        us.recover(few, us.learners.AttentionLayer())


def test_tokens_of_limited_length_are_refused():
    model = small()
    with pytest.raises(us.errors.DomainError, match="max_norm"):
        us.recover(asked(model, max_norm=1e12), us.learners.AttentionLayer())


def test_diagnosis_chooses_the_learner():
    diagnosis = us.diagnose(asked(small()))
    assert diagnosis.family == "attention layer beside or behind a network"
    assert isinstance(diagnosis.learner, us.learners.AttentionLayer)


def test_what_was_found_is_saved_and_read_back(tmp_path):
    layer = attention_of(small()).canonical()
    model = us.models.LayerBehind(layer, np.eye(32), True)
    model.save(tmp_path / "model.safetensors")
    again = us.models.load(tmp_path / "model.safetensors")
    X = np.random.default_rng(0).standard_normal((2, 5, 32))
    assert np.allclose(again(X), model(X), rtol=1e-12, atol=1e-12)
    assert us.models.equivalent(again, layer)
    assert us.models.distance(again, layer) <= 1e-14
    assert again.final_norm
    assert np.allclose(again.W_at(3), layer.W_at(3))


@pytest.mark.long
def test_through_a_server_that_takes_prompt_embeds():
    pytest.importorskip("torch")
    from tests.servers.language_model import language_server
    from unsoftmax.serving.language_model import LanguageService

    model = small()
    with language_server(LanguageService(model)) as url:
        oracle = us.adapters.openai(
            f"{url}/v1", "model", vocabulary=48, embeds=True, dim=32, dtype="float64", rate=np.inf, max_batch=256
        )
        recovery = us.recover(oracle, us.learners.AttentionLayer(), seed=1, budget=20_000)
    assert us.models.distance(recovery.model, attention_of(model)) <= 1e-4


@pytest.mark.parametrize("size", [1e-3, 1e-2])
def test_a_cubic_behind_a_layer_is_no_network_that_drops_out(size):
    """Beside endless tokens nothing shows of what heads write: that had ended in an array of no rows."""
    around = {"positions": us.models.Rope.ladder(8, 1e4), "norm": "rms", "residual": True, "bias": False}
    layer = us.models.AttentionLayer.random(32, 4, 8, seed=1, **around)
    bent = us.oracle(lambda X: (y := layer(X)) + size * y**3, 32, outputs=32)
    with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable)):
        us.recover(bent)


@pytest.mark.parametrize("seed", range(3))
def test_a_function_beside_attention_is_not_said_to_stand_behind_it(seed):
    """Endless query tokens do not tell the two apart, and what calling the model gives is said."""
    layer = us.models.AttentionLayer.random(
        24, 2, 4, kv_groups=1, norm="rms", residual=True, positions=us.models.Rope(np.array([1.0, 0.1])), seed=seed
    )
    rng = np.random.default_rng(seed)
    into, out = rng.standard_normal((24, 16)) / 5, rng.standard_normal((16, 24)) / 4

    def parallel(tokens):
        last = tokens[:, -1]
        seen = last / np.sqrt((last**2).mean(axis=1, keepdims=True) + 1e-6)
        return layer(tokens) + np.tanh(seen @ into) @ out

    recovery = us.recover(us.oracle(parallel, 24, outputs=24), seed=seed)
    told = " ".join(recovery.notes)
    assert us.models.distance(recovery.model, layer) < 1e-3
    assert "network stands behind" not in told
    assert "a network behind it, or a function of the last token alone beside it" in told
    assert "NOT the answers of the target" in told
    assert "without a residual" not in told
