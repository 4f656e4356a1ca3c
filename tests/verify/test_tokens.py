"""Verification over ids has teeth: one wrong gap among thousands of right ones moves near ties."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax import verify
from unsoftmax.oracles import Stack
from unsoftmax.run import engine
from unsoftmax.verify import tokens

HEAD = us.models.TokenHead.random(60, 4, 2.0, seed=0)


def certificate(model, target, **options) -> us.Certificate:
    oracle = us.token_oracle(target, 60, **options)
    return engine.run(verify.check(model, oracle.spec, 0), Stack(oracle))


def test_the_truth_passes_at_any_strength() -> None:
    for scale in (0.01, 1.0, 8.0, 50.0):
        head = us.models.TokenHead.random(60, 4, scale, seed=1)
        assert certificate(head, head).holds


@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_an_error_in_the_scores_is_seen(size, scale) -> None:
    head = us.models.TokenHead.random(60, 4, scale, seed=1)
    K, Q = head.scores
    wrong = us.models.TokenHead((K + size * np.random.default_rng(0).standard_normal(K.shape), Q), head.values)
    assert not certificate(wrong, head).holds


def test_an_error_within_the_stated_one_is_allowed_and_a_larger_one_is_not() -> None:
    K, Q = HEAD.scores
    stated = np.full((60, 1), 1e-6), np.ones((60, 1))
    for size, holds in ((1e-8, True), (1e-3, False)):
        moved = K + size * np.random.default_rng(0).standard_normal(K.shape)
        assert certificate(us.models.TokenHead((moved, Q), HEAD.values, errors=stated), HEAD).holds is holds


def test_a_wrong_value_is_seen() -> None:
    assert not certificate(us.models.TokenHead(HEAD.scores, HEAD.values * (1 + 1e-4)), HEAD).holds


def test_longer_sequences_are_part_of_it() -> None:
    def damped(ids):
        return HEAD(ids) * (1.0 if ids.shape[1] <= 3 else 0.999)

    assert not certificate(HEAD, damped).holds


@pytest.mark.parametrize("options", [{}, {"max_length": 1}, {"max_length": 2}, {"max_length": 7}, {"forbidden": [3]}])
def test_the_number_of_queries_is_known_in_advance(options) -> None:
    oracle = us.token_oracle(HEAD, **options)
    model = us.models.TokenHead(HEAD.scores, HEAD.values, forbidden=np.array(options.get("forbidden", [59])))
    stack = Stack(oracle)
    assert engine.run(verify.check(model, oracle.spec, 0), stack).holds
    assert stack.meter.billed == tokens.queries(oracle.spec)


def test_near_ties_tie() -> None:
    spec = us.token_oracle(HEAD).spec
    probes = tokens.near_ties(HEAD, spec, 3, np.random.default_rng(0))
    level = HEAD.gaps(probes.tokens, probes.tokens[:, -1:])
    level = level + np.log(probes.counts if probes.counts is not None else 1)
    close = np.sort(level, axis=1)
    assert np.median(close[:, -1] - close[:, -2]) < 1.5


def test_models_of_vectors_are_refused() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="token ids"):
        certificate(us.models.SingleHead.random(3), HEAD)


def attending(ids, scores, keep=0.0):
    weights = np.exp(scores)
    weights /= weights.sum(axis=1, keepdims=True)
    weights = np.where(weights < keep, 0.0, weights)
    return (weights * HEAD.values[ids]).sum(axis=1) / weights.sum(axis=1)


@pytest.mark.parametrize("max_length", [3, 4, 8])
def test_a_bonus_of_the_last_place_is_seen_where_the_last_token_repeats(max_length) -> None:
    S = HEAD.scores[0] @ HEAD.scores[1].T

    def biased(ids):
        scores = S[ids, ids[:, -1:]]
        scores[:, -1] += 0.5
        return attending(ids, scores)

    # All that pairs show is right: the bonus is part of the gaps.
    pairs = us.models.TokenHead(S - 0.5 * (1 - np.eye(60)), HEAD.values)
    found = {claim.name: claim.holds for claim in certificate(pairs, biased, max_length=max_length).claims}
    assert not found["repeated sequences"]


@pytest.mark.parametrize("max_length", [2, 3, 4])
def test_small_weights_left_out_are_seen(max_length) -> None:
    S = HEAD.scores[0] @ HEAD.scores[1].T
    target = lambda ids: attending(ids, S[ids, ids[:, -1:]], keep=0.01)  # noqa: E731
    found = {claim.name: claim.holds for claim in certificate(HEAD, target, max_length=max_length).claims}
    assert not found["faint sequences"]
    assert certificate(HEAD, HEAD, max_length=max_length).holds


def test_rounding_to_decimals_is_no_contradiction_but_more_than_it_is() -> None:
    assert certificate(HEAD, lambda ids: np.round(HEAD(ids), 5)).holds
    assert not certificate(HEAD, lambda ids: np.round(HEAD(ids) * 1.0001, 5)).holds
