"""One-layer attention-only language models: circuits, their cost, their stated error, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax as us
from tests.learners.rates import few_above
from tests.one_layer import Weights
from unsoftmax.models import TokenLayer

T = 10


def learned(fn: Callable, V: int, seed: int = 0, length: int = T, **how) -> us.Recovery:
    return us.recover(us.logit_oracle(fn, V, max_length=length, **how), us.learners.TokenLayer(), seed=seed)


def stated(recovery: us.Recovery) -> float:
    return next(claim.bound for claim in recovery.certificate if claim.name == "relative parameter error")


@pytest.mark.parametrize(("d", "H", "k"), [(16, 2, 8), (16, 1, 16), (20, 2, 8)])
@pytest.mark.parametrize("seed", range(2))
def test_circuits_at_the_closed_form(d: int, H: int, k: int, seed: int) -> None:
    weights = Weights.random(60, d, H, k, T, seed=seed, biases=bool(seed))
    recovery = learned(weights, 60, seed)
    assert us.models.distance(recovery.model, TokenLayer.of_weights(*weights.parts)) <= min(1e-9, stated(recovery))
    usage = recovery.usage
    if "repair" not in usage.phases:
        assert usage.billed - usage.phases["verify"] == us.theory.token_layer_queries(60, d, H, k, T)


@pytest.mark.parametrize("shows", ["logits", "log-probabilities"])
def test_log_probabilities_cost_no_more(shows: str) -> None:
    weights = Weights.random(60, 16, 2, 8, T, biases=True)
    recovery = learned(weights.log_probabilities, 60, shows=shows)
    assert recovery.model.centred
    truth = TokenLayer.of_weights(*weights.parts, centred=True)
    assert us.models.distance(recovery.model, truth) <= min(1e-9, stated(recovery))


def test_a_direction_that_tokens_alone_hardly_show_is_known_as_well_as_they_show_it() -> None:
    """Its singular value is 5e-5 of the largest: longer prompts left the space by 4e-13 of the answers."""
    target = TokenLayer.random(32, 120, 4, 12, seed=300)

    def log_probabilities(ids):
        y = target(ids)
        return y - np.logaddexp.reduce(y, axis=1, keepdims=True)

    assert learned(log_probabilities, 120, length=12, shows="log-probabilities").certificate.holds


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_faint_and_sharp_attention(scale: float) -> None:
    weights = Weights.random(60, 16, 2, 8, T, seed=3, scale=scale)
    recovery = learned(weights, 60)
    assert us.models.distance(recovery.model, TokenLayer.of_weights(*weights.parts)) <= min(1e-7, stated(recovery))


@pytest.mark.parametrize(("d", "H", "k"), [(16, 2, 6), (12, 2, 4)])
def test_narrow_heads_take_a_smaller_cube(d: int, H: int, k: int) -> None:
    weights = Weights.random(60, d, H, k, T)
    recovery = learned(weights, 60)
    assert us.models.distance(recovery.model, TokenLayer.of_weights(*weights.parts)) <= min(1e-8, stated(recovery))
    assert recovery.usage.phases["repair"] > 0


def test_without_places_the_order_does_not_matter() -> None:
    weights = Weights.random(60, 16, 2, 8, T, places=0.0)
    recovery = learned(weights, 60)
    assert not recovery.model.positions.any()
    assert us.models.distance(recovery.model, TokenLayer.of_weights(*weights.parts)) <= 1e-9
    assert any("order of the tokens" in note for note in recovery.notes)


def test_more_places_are_learned_on_request() -> None:
    weights = Weights.random(60, 16, 2, 8, 20)
    oracle = us.logit_oracle(weights, 60, max_length=20)
    recovery = us.recover(oracle, us.learners.TokenLayer(length=20))
    assert recovery.model.length == 20
    assert us.models.distance(recovery.model, TokenLayer.of_weights(*weights.parts)) <= 1e-8


def test_tokens_that_may_not_be_asked_are_left_out() -> None:
    weights = Weights.random(60, 16, 2, 8, T)
    recovery = learned(weights, 60, forbidden=[0, 7])
    kept = np.delete(np.arange(60), [0, 7])
    ids = np.random.default_rng(0).choice(kept, (20, T))
    np.testing.assert_allclose(recovery.model(ids), weights(ids), atol=1e-8)
    assert any("2 tokens may not be asked" in note for note in recovery.notes)


def test_queries_that_look_alike_by_chance_hide_no_direction() -> None:
    """One strong direction and many weak ones: nine queries seemed to span all, and the others were then refused."""
    layer = us.models.TokenLayer.random(10, 40, 1, 9, seed=1065)
    oracle = us.logit_oracle(layer, layer.vocabulary, max_length=layer.length)
    recovery = us.recover(oracle, us.learners.TokenLayer(), seed=1065)
    assert us.models.distance(recovery.model, layer) <= 1e-10


def test_what_stands_behind_is_refused_by_name() -> None:
    weights = Weights.random(60, 16, 2, 8, T)

    def network(ids):
        return (weights.hidden(ids) + np.tanh(weights.hidden(ids))) @ weights.U

    def norm(ids):
        h = weights.hidden(ids)
        return h / np.sqrt((h**2).mean(axis=1, keepdims=True)) @ weights.U

    for fn, said in (
        (network, "a network, a second layer"),
        (lambda ids: weights.hidden(ids, layers=2) @ weights.U, "a network, a second layer"),
        (norm, "a final norm stands behind it"),
    ):
        with pytest.raises(us.errors.ModelMismatch, match=said):
            learned(fn, 60)


def test_heads_that_overlap_are_refused_by_name() -> None:
    with pytest.raises(us.errors.NotIdentifiable, match="overlap"):
        learned(Weights.random(60, 16, 2, 12, T), 60)


def test_layers_too_wide_to_be_fitted_are_refused_for_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsoftmax.learners.circuits.values.LARGEST", 500)
    with pytest.raises(us.errors.NotIdentifiable, match="too wide"):
        learned(Weights.random(60, 16, 2, 8, T), 60)


def test_digits_are_needed() -> None:
    weights = Weights.random(60, 16, 2, 8, T)
    with pytest.raises(us.errors.NotIdentifiable, match="OutputLayer"):
        learned(lambda ids: weights(ids).astype(np.float32).astype(float), 60)
    asked: list[int] = []
    with pytest.raises(us.errors.NotIdentifiable, match="OutputLayer"):
        learned(lambda ids: asked.append(len(ids)), 60, tolerance=1e-4)
    assert not asked


@pytest.mark.parametrize("shows", ["top", "chosen"])
def test_all_logits_are_needed(shows: str) -> None:
    with pytest.raises(us.errors.InvalidArgument, match="all logits"):
        learned(lambda ids: ids, 60, shows=shows, top=5)


@pytest.mark.long
def test_two_hundred_tokens_four_heads() -> None:
    """What is asked beyond the closed form hangs on the draw: the bars are for nine of ten."""
    least = (us.theory.token_layer_unknowns(200, 32, 4, 8, 16) - us.theory.output_layer_unknowns(200, 32)) / 32
    off, cost, design = [], [], us.theory.token_layer_queries(200, 32, 4, 8, 16)
    assert design <= 1.5 * least
    for seed in range(10):
        weights = Weights.random(200, 32, 4, 8, 16, seed=seed)
        recovery = learned(weights, 200, seed, length=16)
        usage = recovery.usage
        assert usage.billed - usage.phases["verify"] - usage.phases.get("repair", 0) == design
        off.append(us.models.distance(recovery.model, TokenLayer.of_weights(*weights.parts)))
        assert off[-1] <= stated(recovery)
        cost.append((usage.billed - usage.phases["verify"]) / least)
    few_above(off, 1e-8, 1 / 10)
    few_above(cost, 2.0, 1 / 10)
