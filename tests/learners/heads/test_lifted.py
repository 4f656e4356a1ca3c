"""Heads with key offsets and a constant, learned one dimension higher."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us


def heads(dim, count, seed, rank=None):
    base = us.models.MultiHead.random(dim, count, rank=rank, norm=2.0, seed=seed)
    rng = np.random.default_rng(seed)
    return us.models.MultiHead(base.W, base.v, rng.standard_normal((count, dim)), 0.7)


@pytest.mark.parametrize(("dim", "count", "seed"), [(5, 1, 1), (8, 2, 2), (8, 3, 3), (16, 3, 4)])
def test_offsets_and_constant_are_found(dim, count, seed):
    target = heads(dim, count, seed)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(affine=True), seed=seed)
    assert us.models.distance(recovery.model, target) < 1e-10
    assert recovery.usage.phases["values"] == dim + 1


def test_low_rank_heads_with_offsets():
    target = heads(12, 2, 5, rank=2)
    assert us.models.distance(us.recover(us.oracle(target), us.learners.MultiHead(affine=True)).model, target) < 1e-10


def test_without_the_wider_class_the_target_is_refused():
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.oracle(heads(6, 2, 1)), us.learners.MultiHead())


def test_a_norm_limit_is_refused_before_the_first_query():
    with pytest.raises(us.errors.DomainError, match="affine"):
        us.recover(us.oracle(heads(6, 2, 1), max_norm=3.0), us.learners.MultiHead(affine=True))


def test_distance_sees_offsets_and_constant():
    target = heads(6, 2, 1)
    moved = us.models.MultiHead(target.W, target.v, target.c * 1.01, target.constant)
    shifted = us.models.MultiHead(target.W, target.v, target.c, 0.71)
    assert 1e-3 < us.models.distance(moved, target) < 0.1
    assert 1e-3 < us.models.distance(shifted, target) < 0.1


def test_an_offset_without_scores():
    """A head with W = 0 attends by its key offset alone."""
    rng = np.random.default_rng(5)
    W = rng.standard_normal((2, 6, 6)) * np.array([1.0, 0.0])[:, None, None]
    target = us.models.MultiHead(W, rng.standard_normal((2, 6)), rng.standard_normal((2, 6)), 0.3)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(affine=True))
    assert us.models.distance(recovery.model, target) <= 1e-10
    assert any("W_2 is 0" in claim.statement for claim in recovery.certificate.claims)


def test_a_mean_of_all_tokens_beside_a_constant():
    target = us.models.MultiHead(np.zeros((1, 6, 6)), np.random.default_rng(6).standard_normal((1, 6)), None, 0.1)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(affine=True))
    assert us.models.distance(recovery.model, target) <= 1e-13


def test_rounding_that_nobody_declared_is_seen_in_single_tokens():
    target = heads(5, 2, 1)
    service = us.oracle(lambda X: target(X).astype("float32").astype("float64"), 5)
    recovery = us.recover(service, us.learners.MultiHead(affine=True))
    stated = next(claim.bound for claim in recovery.certificate if claim.name == "relative parameter error")
    assert recovery.certificate.holds
    assert us.models.distance(recovery.model, target) <= stated
