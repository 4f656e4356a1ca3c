"""Stated errors of weights: known errors are found, a bound past a half is unknown, W = 0 is stated as a norm."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.learners.core.base import ERROR_OF_W, NETWORK_RESIDUAL, RELATIVE_ERROR, Allowance, Outcome
from unsoftmax.results.recovery import Certificate, Claim
from unsoftmax.run.attempt import _refusal
from unsoftmax.verify.plan import Checked, Statement
from unsoftmax.verify.stated import implied, joined, moves, statements


def stated(recovery: us.Recovery) -> dict[str, float]:
    return {claim.name: claim.bound for claim in recovery.certificate.claims}


def error(model: us.models.SingleHead, rank: int, size: float, rng: np.random.Generator) -> us.models.SingleHead:
    E = rng.standard_normal((model.dim, rank)) @ rng.standard_normal((rank, model.dim))
    return replace(model, W=model.W + E * (size * np.linalg.norm(model.W) / np.linalg.norm(E)))


@pytest.mark.parametrize("rank", [1, 8])
@pytest.mark.parametrize("size", [1e-9, 1e-3])
def test_an_error_of_any_rank_is_found_within_a_factor(rank, size):
    rng = np.random.default_rng(rank)
    for seed in range(6):
        model = us.models.SingleHead.random(8, norm=1.5, seed=seed)
        wrong = error(model, rank, size, rng)
        tokens = rng.standard_normal((48, 4, 8)) * 0.6
        found = implied(wrong, lambda other, X=tokens: other(X), wrong(tokens) - model(tokens), rng)
        assert size / 3 <= found["W"] <= 3 * size


def test_what_hardly_moves_the_answers_is_not_read_off_rounding():
    model = us.models.SingleHead.random(5, seed=1)
    faint = replace(model, W=model.W * 1e-19)
    tokens = np.random.default_rng(0).standard_normal((48, 3, 5))
    found = implied(faint, lambda other: other(tokens), np.zeros(48), np.random.default_rng(1))
    assert found["W"] > 1


@pytest.mark.parametrize("rank", [1, 4, 7])
def test_an_offset_that_no_answer_shows_hides_nothing_of_the_other_parameters(rank):
    """Steps grow until the offset shows; what showed at the first step is not measured at steps that saturate."""
    for seed in range(10):
        plain = us.models.LowRankHead.random(8, rank, norm=1.5, seed=seed)
        model = replace(plain, c=np.full(8, 1e-28), constant=0.3)
        tokens = np.random.default_rng(seed).standard_normal((48, 4, 8)) * 0.6
        shown = moves(model, lambda other, X=tokens: other(X), np.random.default_rng(1))
        alone = moves(replace(plain, constant=0.3), lambda other, X=tokens: other(X), np.random.default_rng(1))
        assert shown["W"].mean() == pytest.approx(alone["W"].mean(), rel=0.5)


@pytest.mark.parametrize("scale", [0.0, 1e-120, 1e-80, 1e-40])
@pytest.mark.parametrize("learner", [us.learners.SingleHead(), us.learners.LowRank(), us.learners.MultiHead(), None])
def test_a_w_that_no_score_shows_is_stated_as_a_norm(scale, learner):
    head = us.models.SingleHead.random(4, seed=3)
    target = us.models.SingleHead(head.W * scale, head.v)
    recovery = us.recover(us.oracle(target), learner)
    assert RELATIVE_ERROR not in stated(recovery)
    assert np.linalg.norm(recovery.model.W - target.W) <= stated(recovery)[ERROR_OF_W] <= 1e-6


@pytest.mark.parametrize("limit", [1e-6, 1e-12])
def test_weights_under_a_tiny_norm_limit_are_known_as_stated_or_refused(limit):
    cases = [
        (us.learners.Transformer(), us.models.Transformer.random(4, 6, norm=2.0, seed=1)),
        (us.learners.MultiHead(), us.models.MultiHead.random(4, 2, norm=2.5, seed=1)),
    ]
    for learner, target in cases:
        try:
            recovery = us.recover(us.oracle(target, max_norm=limit), learner)
        except (us.errors.NotIdentifiable, us.errors.ModelMismatch):
            continue
        bound = stated(recovery)[RELATIVE_ERROR]
        assert bound < 1
        assert np.linalg.norm(recovery.model.W - target.W) <= bound * np.linalg.norm(target.W)


def sparse(heads: us.models.MultiHead, cut: float = 1e-3):
    """Attention that drops weights below `cut`."""

    def answers(tokens, counts=None):
        total = np.zeros(len(tokens))
        for W, v in zip(heads.W, heads.v, strict=True):
            scores = np.einsum("bnd,de,be->bn", tokens, W, tokens[:, -1])
            scores = scores if counts is None else scores + np.log(counts)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            weights = np.where(weights < cut, 0.0, weights)
            total += (weights / weights.sum(axis=1, keepdims=True) * (tokens @ v)).sum(axis=1)
        return total

    answers.accepts_counts = True
    return answers


@pytest.mark.parametrize("seed", range(4))
def test_sparse_attention_is_refused(seed):
    rng = np.random.default_rng([seed, 4])
    W, v = np.zeros((2, 5, 5)), np.zeros((2, 5))
    for h, part in enumerate((slice(0, 2), slice(2, 5))):
        k = part.stop - part.start
        W[h, part, part], v[h, part] = rng.standard_normal((k, k)), rng.standard_normal(k)
    for learner, target in (
        (us.learners.OrthogonalHeads(), us.models.MultiHead(W, v)),
        (us.learners.MultiHead(), us.models.MultiHead.random(6, 2, norm=2.0, seed=seed)),
    ):
        with pytest.raises(us.errors.ModelMismatch):
            us.recover(us.oracle(sparse(target), target.dim), learner, seed=seed)


def test_weights_dropped_below_a_hundred_thousandth_show_in_long_tokens():
    rng = np.random.default_rng(13)
    Q, K = rng.standard_normal((2, 9, 9))
    head = us.models.MultiHead((Q.T @ K / 12)[None], np.random.default_rng(3).standard_normal((1, 9)))
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.oracle(sparse(head, 1e-5), 9), us.learners.MultiHead())


def test_a_bound_past_a_half_is_unknown_and_does_not_hold():
    checked = Checked((Claim("near ties", 1e-3, 1e-4),))
    model = us.models.SingleHead.random(4)
    for stated in (
        Allowance(Claim(RELATIVE_ERROR, 64.0)),
        Allowance(network=Claim(NETWORK_RESIDUAL, 1.4, 0.12)),
        Allowance(network=Claim(NETWORK_RESIDUAL, 0.6, 0.12)),
    ):
        certificate = Certificate(joined(Outcome(model, allows=stated), checked))
        assert not certificate.holds
        assert "unknown" in str(certificate)


def test_the_larger_of_what_is_predicted_and_seen_is_stated_but_bad_conditioning_alone_states_nothing():
    def bound(learned: float, seen: float) -> float:
        outcome = Outcome(us.models.SingleHead.random(4), allows=Allowance(Claim(RELATIVE_ERROR, learned)))
        checked = Checked((Claim("near ties", 1.0, 0.0),), Statement(Claim(RELATIVE_ERROR, seen)))
        claims = joined(outcome, checked)
        return next(claim.bound for claim in claims if claim.name == RELATIVE_ERROR)

    assert bound(1e-14, 1e-6) == 1e-6
    assert bound(1e-3, 1e-6) == 1e-3
    assert bound(64.0, 1e-6) == 1e-6
    assert bound(1e-14, 2.0) == math.inf


def test_offsets_lost_in_the_noise_are_named():
    model = replace(us.models.SingleHead.random(4, seed=1), c=np.full(4, 0.1))
    said = statements(model, {"W": 1e-6, "v": 1e-7, "c": 0.5}, "fresh sequences")
    assert said.relative is None
    assert said.of_others.bound == pytest.approx(6e-6)
    assert "lost in the noise: c" in said.of_others.statement
    assert said.of_W.bound == pytest.approx(6e-6 * np.linalg.norm(model.W))


def test_what_is_said_of_every_parameter_counts_offsets_that_are_known_worse():
    model = replace(us.models.SingleHead.random(4, seed=1), c=np.full(4, 0.1))
    said = statements(model, {"W": 1e-6, "v": 1e-7, "c": 0.05}, "fresh sequences")
    assert said.relative.bound == pytest.approx(0.3)
    assert said.of_others.bound == pytest.approx(6e-6)
    assert Certificate((said.relative, said.of_others)).stated_error == said.relative.bound


@pytest.mark.parametrize("seed", range(3))
def test_a_layer_of_faint_key_offsets_in_float32_states_no_less_than_their_error(seed):
    """Trained layers have key offsets of a few thousandths: their error had been left out of what is said of all."""
    made = us.models.AttentionLayer.random(32, 4, bias=True, seed=seed)
    faint = replace(made, c=made.c * 3e-3)
    found = us.recover(us.oracle(faint.astype("float32"), dtype="float32"))
    claims = stated(found)
    if RELATIVE_ERROR in claims:
        assert us.models.distance(found.model, faint) <= claims[RELATIVE_ERROR]
    else:
        order = [int(np.argmin([np.linalg.norm(W - other) for W in found.model.W])) for other in faint.W]
        assert np.linalg.norm(found.model.W[order] - faint.W) <= claims[ERROR_OF_W]


def test_the_weights_of_a_target_that_only_looks_exact_are_stated_as_they_are():
    target = us.models.SingleHead.random(6, norm=2.0, seed=1)
    for dtype in ("float32", "float16"):
        recovery = us.recover(us.oracle(target.astype(dtype)), us.learners.SingleHead())
        off = us.models.distance(recovery.model, target.astype(dtype))
        assert off <= stated(recovery)[RELATIVE_ERROR] <= 1e3 * off


def test_a_measured_error_of_0_98_does_not_stand_beside_holds():
    measured = Statement(Claim(RELATIVE_ERROR, 0.98))
    outcome = Outcome(us.models.SingleHead.random(4))
    assert not Certificate(joined(outcome, Checked((Claim("near ties", 1e-3, 1e-4),), measured))).holds


def test_a_model_that_is_off_by_what_its_learner_cannot_know_speaks_of_the_answers_not_of_the_class():
    seen = Certificate((Claim("near ties", 0.05, 0.2),))
    hopeless = Claim(RELATIVE_ERROR, 64.0)
    for exact in (False, True):
        refusal = _refusal(seen, "AttentionLayer", "AttentionLayer", hopeless, None, exact)
        assert isinstance(refusal, us.errors.NotIdentifiable)
        assert "6e+01 times their size" in str(refusal)
        assert "near ties: 0.2 where 0.05" in str(refusal)
        assert ("more digits" in str(refusal)) != exact
    for known in (None, Claim(RELATIVE_ERROR, 0.01)):
        told = _refusal(seen, "AttentionLayer", "AttentionLayer", known, None, True)
        assert isinstance(told, us.errors.ModelMismatch)
