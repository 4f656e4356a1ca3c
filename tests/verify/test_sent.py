"""Sequences as users send them: a rule that starts at some length is seen, and norms and lengths are said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax import verify
from unsoftmax.spec import Domain, OracleSpec
from unsoftmax.verify.sent import LONG, long_sequences, sent_norms


class FromLength:
    """A model up to a length; from there the mean of what single tokens give."""

    def __init__(self, model: Any, start: int) -> None:
        self.model, self.start, self.dim = model, start, getattr(model, "dim", None)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        if X.shape[1] < self.start:
            return np.asarray(self.model(X))
        return np.mean([self.model(X[:, i : i + 1]) for i in range(X.shape[1])], axis=0)


CASES = {
    "single head": (us.models.SingleHead.random(6, seed=1), us.learners.SingleHead()),
    "low rank": (us.models.LowRankHead.random(8, 2, seed=1), us.learners.LowRank()),
    "noise measured": (us.models.SingleHead.random(6, seed=1), us.learners.Approximate()),
    "several heads": (us.models.MultiHead.random(6, 2, seed=1), us.learners.MultiHead()),
    "behind a network": (us.models.Transformer.random(4, 6, seed=1), us.learners.AttentionBehind()),
}


@pytest.mark.parametrize("start", [30, 200])
@pytest.mark.parametrize("name", CASES)
def test_a_behaviour_that_starts_at_a_length_is_refused(name: str, start: int) -> None:
    model, learner = CASES[name]
    us.recover(us.oracle(model, model.dim), learner)
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.oracle(FromLength(model, start), model.dim), learner)


def test_it_is_refused_from_labels_and_from_token_ids_too() -> None:
    head = us.models.SingleHead.random(4, seed=2)
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.oracle(FromLength(head, 30), 4, kind="membership"), us.learners.Membership(accuracy=1e-4))
    tokens = us.models.TokenHead.random(12, 3, seed=2)
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.token_oracle(FromLength(tokens, 200), 12), us.learners.TokenHead())


@pytest.mark.parametrize("limit", [None, 20, 21, 30, 128, 300])
def test_long_sequences_cost_no_more_than_one_short_length(limit: int | None) -> None:
    counts = long_sequences(OracleSpec(8, domain=Domain(max_length=limit)), 12)
    assert sum(counts.values()) == (0 if limit == 20 else 12)
    assert max(counts, default=20) == min(limit or 300, 300)


def test_the_certificate_says_lengths_and_norms() -> None:
    head = us.models.SingleHead.random(16, seed=3)
    free = us.recover(us.oracle(head, 16), us.learners.SingleHead()).certificate
    said = next(claim.statement for claim in free if claim.name == LONG)
    assert "of lengths 21, 34, 300, tokens of norm 1 and 4" in said
    limited = us.recover(us.oracle(head, 16, max_norm=2.0, max_length=40), us.learners.SingleHead()).certificate
    said = next(claim.statement for claim in limited if claim.name == LONG)
    assert "of lengths 21, 34, 40, tokens of norm 1 and 1.8" in said


def test_norms_are_those_that_users_send_but_never_past_saturation() -> None:
    spec = OracleSpec(256)
    assert sent_norms(1.0, spec) == [1.0, 16.0]
    assert sent_norms(0.01, spec) == [0.16]
    assert sent_norms(1.0, OracleSpec(256, tolerance=1e-3)) == [1.0]
    assert math.isclose(sent_norms(1.0, OracleSpec(256, domain=Domain(max_norm=5.0)))[-1], 4.5)


def test_counts_are_what_they_were() -> None:
    assert verify.queries(OracleSpec(8)) == 136
    assert verify.queries(OracleSpec(8, kind="membership")) == 96
