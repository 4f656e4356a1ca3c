"""Affine terms: one query per unknown of the wider class, at the precision the sizes of c and W allow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import unsoftmax as us


def head(d: int, norm: float, size: float, constant: float, seed: int) -> us.models.SingleHead:
    plain = us.models.SingleHead.random(d, norm=norm, seed=seed)
    c = np.random.default_rng(seed).standard_normal(d) * size
    return us.models.SingleHead(plain.W, plain.v, c=c, constant=constant)


@settings(max_examples=40, deadline=None)
@given(
    d=st.integers(1, 12),
    log_norm=st.floats(-1, 2),
    log_c=st.floats(-3, 0.5),
    constant=st.sampled_from([0.0, 1.0, -30.0]),
    seed=st.integers(0, 999),
)
@example(d=11, log_norm=0.0, log_c=0.0, constant=0.0, seed=366)  # c and W saturate a logit together
def test_c_constant_and_W_are_found(d, log_norm, log_c, constant, seed) -> None:
    target = head(d, 10**log_norm, 10**log_c, constant, seed)
    recovery = us.recover(us.oracle(target), us.learners.SingleHead(affine=True), seed=seed)
    distance = us.models.distance(recovery.model, target)
    assert distance < 1e-9
    assert distance <= recovery.certificate.claims[0].bound
    phases = recovery.usage.phases
    assert phases["values"] + phases["main"] == us.theory.affine_head_queries(d)


def test_no_affine_terms_is_a_special_case() -> None:
    target = us.models.SingleHead.random(10, norm=3.0, seed=1)
    recovery = us.recover(us.oracle(target), us.learners.SingleHead(affine=True))
    assert np.abs(recovery.model.W - target.W).max() < 1e-12
    assert np.abs(recovery.model.c).max() < 1e-9
    assert recovery.model.constant == 0


def test_norm_limit_is_kept() -> None:
    target = head(8, 3.0, 0.5, 0.2, 3)

    def strict(X):
        assert np.linalg.norm(X, axis=2).max() <= 1 + 1e-12
        return target(X)

    recovery = us.recover(us.oracle(strict, 8, max_norm=1.0), us.learners.SingleHead(affine=True))
    assert us.models.distance(recovery.model, target) < 1e-10


def test_two_heads_with_affine_terms_are_refused() -> None:
    one, two = head(6, 3.0, 0.5, 0.0, 1), head(6, 3.0, 0.5, 0.0, 2)
    both = us.models.MultiHead(np.stack([one.W, two.W]), np.stack([one.v, two.v]), c=np.stack([one.c, two.c]))
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.oracle(both), us.learners.SingleHead(affine=True))


def test_the_papers_probes_have_no_affine_terms() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="householder"):
        us.recover(us.oracle(head(4, 1.0, 0.5, 0.0, 1)), us.learners.SingleHead("coordinate", affine=True))


@pytest.mark.parametrize("rank", [None, 3])
def test_low_rank_heads_take_the_same_reduction(rank) -> None:
    plain = us.models.SingleHead.random(24, rank=3, norm=3.0, seed=2)
    target = us.models.SingleHead(plain.W, plain.v, c=np.linspace(-1, 1, 24) / 5, constant=0.3)
    recovery = us.recover(us.oracle(target), us.learners.LowRank(rank, affine=True))
    assert us.models.distance(recovery.model, target) < 1e-11
    assert recovery.model.rank == 3
    phases = recovery.usage.phases
    assert phases["values"] + phases["main"] == us.theory.low_rank_unknowns(24, 3) + 25


@pytest.mark.parametrize(("offset", "constant"), [(1.0, 1e3), (1.0, 1e6), (1e3, 1.0)])
def test_large_affine_terms_are_in_the_stated_error(offset, constant) -> None:
    rng = np.random.default_rng(0)
    target = us.models.SingleHead(
        rng.standard_normal((8, 8)), rng.standard_normal(8), c=offset * rng.standard_normal(8), constant=constant
    )
    recovery = us.recover(us.oracle(target), us.learners.SingleHead(affine=True))
    stated = next(claim for claim in recovery.certificate.claims if claim.name == "relative parameter error")
    assert us.models.distance(recovery.model, target) <= stated.bound <= 3e-4


@pytest.mark.parametrize("decimals", [3, 6])
def test_rounded_answers_ask_for_a_tolerance_that_then_serves(decimals) -> None:
    target = head(8, 3.0, 0.3, 0.4, 1)
    rounded, error = (lambda X: np.round(target(X), decimals)), 0.5 * 10.0**-decimals
    with pytest.raises(us.errors.ModelMismatch, match=f"tolerance={error:g}"):
        us.recover(us.oracle(rounded, 8), us.learners.SingleHead(affine=True))
    recovery = us.recover(us.oracle(rounded, 8, tolerance=error), us.learners.SingleHead(affine=True), seed=1)
    stated = next(claim.bound for claim in recovery.certificate if claim.name == "relative parameter error")
    assert us.models.distance(recovery.model, target) <= stated < 0.5


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("offset", "constant"), [(0.0, 1e-6), (0.0, 0.3), (0.5, 0.0), (0.5, -2.0)])
@pytest.mark.parametrize("rank", [4, 16])
def test_any_rank_with_affine_terms_is_recovered_without_being_told(rank, offset, constant, dtype) -> None:
    """An offset that no answer shows had hidden what an error of a low-rank W moves: every such head was refused."""
    d = 16
    for seed in range(3):
        plain = us.models.SingleHead.random(d, rank=rank, norm=2.0, seed=seed)
        c = np.random.default_rng(seed).standard_normal(d) * offset if offset else None
        target = us.models.MultiHead(plain.W[None], plain.v[None], None if c is None else c[None], constant)
        recovery = us.recover(us.oracle(target.astype(dtype), d), seed=seed)
        stated = {claim.name: claim.bound for claim in recovery.certificate}
        size = np.linalg.norm(plain.W)
        # Of a constant that drowns in float32 no relative error is stated, and W's as a norm.
        bound = stated.get("relative parameter error", stated.get("error of W", np.inf) / size)
        assert np.linalg.norm(recovery.model.W - plain.W) / size <= bound < (1e-8 if dtype == "float64" else 0.1)
        if rank < d:
            phases = recovery.usage.phases
            assert phases["values"] + phases["main"] == (d + 1) + d + rank * (2 * d - rank)


@pytest.mark.parametrize(("offset", "constant"), [(0.0, 0.3), (0.5, 0.0), (0.5, 0.3)])
@pytest.mark.parametrize(
    "learner",
    [us.learners.LowRank(), us.learners.LowRank(rank=4), us.learners.SingleHead(), us.learners.MultiHead(heads=1)],
    ids=["rank found", "rank given", "single", "several"],
)
def test_a_learner_without_affine_terms_says_that_they_are_why(learner, offset, constant) -> None:
    for seed in range(3):
        head = us.models.SingleHead.random(16, rank=4, norm=2.0, seed=seed)
        c = np.random.default_rng(seed).standard_normal(16) * offset if offset else None
        with pytest.raises(us.errors.ModelMismatch, match="affine=True"):
            us.recover(us.oracle(us.models.SingleHead(head.W, head.v, c, constant)), learner, seed=seed)


def nearest_first(X: np.ndarray) -> np.ndarray:
    """A head that weighs a token less the further it is from the last."""
    plain = us.models.SingleHead.random(8, norm=2.0, seed=0)
    scores = np.einsum("nie,ef,nf->ni", X, plain.W, X[:, -1]) - np.arange(X.shape[1])[::-1]
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray((weights * (X @ plain.v)).sum(axis=1) / weights.sum(axis=1))


@pytest.mark.parametrize("learner", [us.learners.SingleHead(), us.learners.LowRank()])
@pytest.mark.parametrize("target", [us.models.MultiHead.random(8, 2, norm=2.0, seed=0), nearest_first])
def test_other_targets_are_not_told_to_have_affine_terms(target, learner) -> None:
    with pytest.raises(us.errors.UnsoftmaxError) as refusal:
        us.recover(us.oracle(target, 8), learner)
    assert "affine=True" not in str(refusal.value)
