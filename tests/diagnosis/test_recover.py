"""`us.recover(oracle)` end to end: the class is found and its own learner's bar is met at no more than its cost."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import unsoftmax as us
from tests.weights import rxnfp_layer

M = us.models
HEAD = M.SingleHead.random(16, norm=2.0, seed=3)
CASES = {
    "single": (M.SingleHead.random(32, norm=2.0, seed=3), us.learners.SingleHead(), 1e-13, {}),
    "low rank": (M.SingleHead.random(48, rank=4, norm=2.0, seed=3), us.learners.LowRank(), 1e-10, {}),
    "multi-head": (M.MultiHead.random(16, 3, norm=2.0, seed=3), us.learners.MultiHead(), 1e-9, {}),
    "affine": (
        M.SingleHead(HEAD.W, HEAD.v, c=np.linspace(-1, 1, 16), constant=0.5),
        us.learners.SingleHead(affine=True),
        1e-12,
        {},
    ),
    "transformer": (M.Transformer.random(16, 32, norm=2.0, seed=3), us.learners.Transformer(), 1e-9, {}),
    "transformer with biases and residual": (
        M.Transformer.random(16, 32, norm=2.0, bias=True, residual=True, seed=3),
        us.learners.Transformer(),
        1e-9,
        {},
    ),
    "ReLU network": (M.ReluNetwork.random(12, 24, seed=3), us.learners.ReluNetwork(), 1e-9, {}),
    "float32": (HEAD.astype("float32"), us.learners.SingleHead(), 1e-5, {}),
    "labels": (M.SingleHead.random(8, norm=2.0, seed=3), us.learners.Membership(), 1e-8, {"kind": "membership"}),
    "layer": (M.AttentionLayer.random(32, 4, seed=3), us.learners.AttentionLayer(), 1e-7, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_recovered_without_being_told_the_class(name) -> None:
    target, learner, error, options = CASES[name]
    found = us.recover(us.oracle(target, **options))
    assert us.models.distance(found.model, target) <= error
    own = us.recover(us.oracle(target, **options), learner)
    assert found.usage.billed <= 1.1 * own.usage.billed + found.usage.phases["diagnosis"]


def test_the_learner_that_was_chosen_is_kept_with_the_result(tmp_path) -> None:
    found = us.recover(us.oracle(HEAD))
    found.save(tmp_path / "r.safetensors")
    for provenance in (found.provenance, us.load(tmp_path / "r.safetensors").provenance):
        assert provenance["configuration"] == {"learner": "Automatic"}
        assert provenance["chosen"] == {
            "learner": "SingleHead",
            "probes": "householder",
            "affine": False,
            "W_bound": None,
        }


def test_a_token_head_needs_no_diagnosis() -> None:
    target = M.TokenHead.random(60, 3, seed=1)
    found = us.recover(us.token_oracle(target, 60))
    assert us.models.distance(found.model, target) <= 1e-10


def test_a_budget_too_small_says_what_the_chosen_learner_needs() -> None:
    head = us.models.SingleHead.random(20, norm=2.0, seed=3)
    spent = us.diagnose(us.oracle(head)).usage.billed
    with pytest.raises(us.errors.BudgetExceeded, match="chose SingleHead, which needs at least") as refused:
        us.recover(us.oracle(head), budget=spent + 30)
    assert refused.value.needed >= 20 + 20**2
    assert refused.value.recovery.usage.billed <= spent + 30
    with pytest.raises(us.errors.BudgetExceeded, match="the diagnosis takes up to"):
        us.recover(us.oracle(head), budget=90)


@pytest.mark.parametrize("layer", [2, 8, 10])
def test_one_number_of_a_trained_layer_with_biases_is_several_heads(layer) -> None:
    whole = rxnfp_layer(layer)
    along = np.random.default_rng(0).standard_normal(whole.dim) / 16
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = us.diagnose(us.oracle(lambda X: whole(X) @ along, whole.dim))
    assert found.learner == us.learners.MultiHead(affine=True)


@pytest.mark.parametrize("norm", [None, "pre", "post"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_trained_layers_are_layers_with_the_norm_they_have(norm, dtype) -> None:
    found = us.diagnose(us.oracle(rxnfp_layer(5, norm).astype(dtype), dtype=dtype))
    assert (found.family, found["norm"]) == ("attention layer", norm or "none")
