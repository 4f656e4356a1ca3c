"""Rational interpolation in the repetition ratio, as a comparison."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us


@pytest.mark.parametrize(("d", "H"), [(4, 1), (6, 2), (6, 3)])
def test_few_heads_within_the_published_count(d: int, H: int) -> None:
    target = us.models.MultiHead.random(d, H, norm=2.0, seed=1)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(method="rational"), seed=1)
    assert us.models.distance(recovery.model, target) <= 1e-10
    spent = recovery.usage.phases["values"] + recovery.usage.phases["main"]
    assert spent == us.theory.multi_head_rational_queries(d, H)
    assert spent <= us.theory.rational_queries(d, H)


def test_more_heads_than_poles_can_tell_are_refused() -> None:
    target = us.models.MultiHead.random(6, 6, norm=2.0, seed=1)
    with pytest.raises(us.errors.ModelMismatch, match="saturation"):
        us.recover(us.oracle(target), us.learners.MultiHead(method="rational"))


@pytest.mark.parametrize(("apart", "seed"), [(1e-4, 3), (1e-4, 7), (1e-5, 0)])
def test_nearly_equal_heads_are_refused_not_blurred(apart, seed) -> None:
    rng = np.random.default_rng(seed)
    W, v = rng.standard_normal((2, 5, 5)) / 2, rng.standard_normal((2, 5))
    target = us.models.MultiHead(np.stack([W[0], W[0] + apart * W[1]]), v)
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.oracle(target), us.learners.MultiHead(method="rational"))


def test_a_head_that_attends_to_all_tokens_alike() -> None:
    target = us.models.MultiHead.random(6, 2, seed=1)
    target = us.models.MultiHead(target.W * np.array([1.0, 0.0])[:, None, None], target.v)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(method="rational"), seed=1)
    assert us.models.distance(recovery.model, target) <= 1e-12
    assert not recovery.model.W[1].any()


def test_sequences_too_short_for_the_ratios_are_refused_before_a_query() -> None:
    target = us.models.MultiHead.random(4, 2, norm=2.0, seed=1)
    for heads, longest in ((None, 5), (2, 3)):
        learner = us.learners.MultiHead(heads=heads, method="rational")
        with pytest.raises(us.errors.DomainError, match=f"needs sequences of {longest + 1} tokens"):
            us.recover(us.oracle(target, max_length=longest), learner)
        recovery = us.recover(us.oracle(target, max_length=longest + 1), learner, seed=1)
        assert us.models.distance(recovery.model, target) <= 1e-9
