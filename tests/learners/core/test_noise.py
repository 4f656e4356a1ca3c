"""Noise nobody declared: measured and bounded; and noise behind an output link."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from scipy.special import expit

import unsoftmax as us
from tests.learners.noisy import gaussian_head
from tests.learners.test_approximate import assert_within, bounds, errors
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.noise import known_noise
from unsoftmax.oracles.stack import Stack
from unsoftmax.run.engine import run

DIM = 12
HEAD = gaussian_head(DIM, 3.0, 5)


def rounded(decimals):
    return lambda limit: us.oracle(lambda X: np.round(HEAD(X), decimals), DIM, max_norm=limit)


def stochastic(limit):
    rng = np.random.default_rng(0)
    return us.oracle(lambda X: HEAD(X) + 1e-4 * rng.standard_normal(len(X)), DIM, max_norm=limit)


def hidden_float32(limit):
    short = HEAD.astype("float32")
    return us.oracle(lambda X: short(X), DIM, max_norm=limit)


NOISY = {
    "3 decimals": rounded(3),
    "6 decimals": rounded(6),
    "9 decimals": rounded(9),
    "3 significant": lambda limit: us.oracles.Rounded(us.oracle(HEAD, max_norm=limit), significant=3),
    "6 significant": lambda limit: us.oracles.Rounded(us.oracle(HEAD, max_norm=limit), significant=6),
    "float32": lambda limit: us.oracles.Cast(us.oracle(HEAD, max_norm=limit), "float32"),
    "hidden float32": hidden_float32,
    "float16": lambda limit: us.oracles.Cast(us.oracle(HEAD, max_norm=limit), "float16"),
    "stochastic": stochastic,
    "exact": lambda limit: us.oracle(HEAD, max_norm=limit),
}


@pytest.mark.parametrize("limit", [1.0, None])
@pytest.mark.parametrize("kind", NOISY)
def test_noise_is_found_and_the_stated_error_holds(kind, limit):
    loose = []
    for seed in range(3):
        try:
            recovery = us.recover(NOISY[kind](limit), us.learners.Approximate(), seed=seed)
        except us.errors.NotIdentifiable:
            # Relative errors are not outscaled by longer tokens: three digits leave a bound past W itself.
            assert (kind, limit) == ("3 significant", None)
            continue
        assert_within(recovery, HEAD)
        loose.append(bounds(recovery)[0] / errors(recovery, HEAD)[0])
        # At rounding itself the error can be luckily small; elsewhere the bound must say something.
        assert kind != "exact" or bounds(recovery)[0] <= 1e-11
        assert {claim.basis for claim in recovery.certificate.claims} == {"measured"}
    assert kind == "exact" or not loose or np.median(loose) <= 200


@pytest.mark.parametrize(
    ("kind", "absolute", "relative"),
    [
        ("3 decimals", 5e-4, 0.0),
        ("6 decimals", 5e-7, 0.0),
        ("stochastic", 1e-4, 0.0),
        ("6 significant", 0.0, 5e-6),
        ("float32", 0.0, 6e-8),
    ],
)
def test_the_noise_floor_is_estimated(kind, absolute, relative):
    oracle = NOISY[kind](1.0)
    for seed in range(5):
        noise, _, _ = run(known_noise(oracle.spec, np.random.default_rng(seed)), Stack(oracle))
        assert noise.measured
        if absolute:
            assert 0.2 < noise.absolute / CORE.deviations_of_a_radius / absolute < 2
        else:
            assert noise.absolute < 0.2 * relative
            assert 0.05 < noise.relative / CORE.deviations_of_a_radius / relative < 3


def test_absolute_noise_is_outscaled_where_tokens_may_grow():
    recovery = us.recover(rounded(3)(None), us.learners.Approximate())
    assert errors(recovery, HEAD)[0] < 1e-11


def test_answers_rounded_to_nothing_are_said():
    oracle = us.oracle(lambda X: np.round(HEAD(X), 0), DIM, max_norm=0.1)
    with pytest.raises(us.errors.NotIdentifiable, match="rounded too coarsely"):
        us.recover(oracle, us.learners.Approximate())


def test_short_tokens_answered_by_nothing_are_off_by_a_step_at_most():
    for seed in range(6):
        head = us.models.SingleHead.random(8, norm=2.0, seed=seed)
        oracle = us.oracle(lambda X, head=head: np.round(head(X), 2), 8, max_norm=1.0)
        noise, _, _ = run(known_noise(oracle.spec, np.random.default_rng(0)), Stack(oracle))
        # Half a step is the truth; a dozen residuals tell a deviation, three of which are stated, to a fifth or so.
        assert 0.005 < noise.absolute < 0.015
        # Twice the noise would be a bound beyond W, and a refusal.
        assert_within(us.recover(oracle, us.learners.Approximate()), head)


@pytest.mark.parametrize(("dim", "decimals", "seed"), [(2, 1, 23), (4, 1, 0), (4, 1, 38), (2, 2, 10)])
def test_coarse_answers_are_not_called_another_class(dim, decimals, seed):
    head, factor = us.models.SingleHead.random(dim, norm=2.0, seed=seed), 10.0**decimals
    for coarse in (np.round, np.trunc, np.floor):
        oracle = us.oracle(lambda X, coarse=coarse: coarse(head(X) * factor) / factor, dim, max_norm=1.0)
        with contextlib.suppress(us.errors.NotIdentifiable):
            recovery = us.recover(oracle, us.learners.Approximate(), seed=seed)
            assert_within(recovery, head)
            # Some forty looks for a length had been paid for.
            assert recovery.usage.billed < 300


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("limit", [1.0, None])
def test_small_answers_swallowed_by_the_service_are_part_of_the_bound(limit, declared):
    for seed, threshold in enumerate((1e-4, 1e-2, 0.05)):
        head = gaussian_head(4, 2.0, seed)

        def service(tokens, head=head, threshold=threshold):
            f = head(tokens)
            return np.where(np.abs(f) < threshold, 0.0, f)

        oracle = us.oracle(service, 4, "approximate", max_norm=limit, tolerance=threshold if declared else 0.0)
        try:
            assert_within(us.recover(oracle, us.learners.Approximate(), seed=seed, verify=False), head)
        except us.errors.NotIdentifiable:
            assert threshold == 0.05


def test_a_wrong_class_does_not_hide_behind_measured_noise():
    two = us.models.MultiHead.random(6, 2, norm=2.0, seed=5)
    oracle = us.oracle(lambda X: np.round(two(X), 6), 6)
    with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable)):
        us.recover(oracle, us.learners.Approximate())


LINKS = {
    "sigmoid": expit,
    "tanh": np.tanh,
    "exp": np.exp,
    "log": lambda f: np.log(np.where(f > 0, f, np.nan)),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(
    ("norm", "size", "limit"), [(3.0, 1.0, None), (3.0, 1.0, 1.0), (3.0, 30.0, 2.0), (200, 0.01, None)]
)
@pytest.mark.parametrize("tau", [0.0, 1e-6])
def test_links_are_undone_with_their_noise(link, norm, size, limit, tau):
    head = gaussian_head(8, norm, 2)
    head = us.models.SingleHead(head.W, head.v * size)
    signs = np.random.default_rng(3)

    def service(tokens):
        assert limit is None or np.linalg.norm(tokens, axis=2).max() <= limit
        return LINKS[link](head(tokens)) + tau * signs.choice([-1, 1], len(tokens))

    oracle = us.oracle(service, 8, link=link, tolerance=tau, max_norm=limit)
    recovery = us.recover(oracle, us.learners.Approximate())
    assert_within(recovery, head)
    assert errors(recovery, head)[0] <= (0.05 if tau else 1e-10) * norm


@pytest.mark.parametrize("decimals", [None, 5])
def test_class_probabilities(decimals):
    head = gaussian_head(8, 3.0, 4)

    def service(tokens):
        p = np.stack([expit(-head(tokens)), expit(head(tokens))], axis=1)
        return p if decimals is None else np.round(p, decimals)

    recovery = us.recover(us.oracle(service, 8, link="sigmoid"), us.learners.Approximate())
    assert_within(recovery, head)


def test_class_probabilities_without_scores():
    rng = np.random.default_rng(0)
    for seed in range(12):
        dim, tau = int(rng.integers(1, 9)), 10 ** rng.uniform(-7, -3)
        v = rng.standard_normal(dim) * 10 ** rng.uniform(-1, 1)
        head = us.models.SingleHead(np.zeros((dim, dim)), v)

        def service(tokens, head=head, tau=tau, exact=seed % 2):
            p = np.stack([expit(-head(tokens)), expit(head(tokens))], axis=1)
            # Noise takes probabilities below 0 and above 1.
            return p if exact else p + tau * rng.uniform(-1, 1, p.shape)

        oracle = us.oracle(service, dim, link="sigmoid", max_norm=(None, 1.0, 2.0)[seed % 3])
        try:
            recovery = us.recover(oracle, us.learners.Approximate(), seed=seed)
        except us.errors.NotIdentifiable:
            # Of W = 0 noise may leave a bound that says nothing.
            assert seed % 2 == 0
            continue
        assert_within(recovery, head)


def test_saturated_answers_are_refused_where_nobody_asks_again():
    head = us.models.SingleHead(np.eye(3), np.array([1.0, 500.0, 3.0]))
    oracle = us.oracle(lambda X: expit(head(X)), 3, link="sigmoid")
    with pytest.raises(us.errors.OracleError, match="range of the link"):
        us.recover(oracle, us.learners.SingleHead())
    recovery = us.recover(oracle, us.learners.Approximate())
    assert_within(recovery, head)


def test_noise_wrappers_do_not_wrap_an_undone_link():
    oracle = us.oracle(lambda X: expit(HEAD(X)), DIM, link="sigmoid")
    with pytest.raises(us.errors.InvalidArgument, match="into the callable"):
        us.oracles.Perturbed(oracle, 1e-3)
    with pytest.raises(us.errors.InvalidArgument, match="into the callable"):
        us.oracles.Rounded(oracle, decimals=3)


def tanh_of_values(head):
    def answers(X):
        s = np.einsum("bnd,de,be->bn", X, head.W, X[:, -1])
        weights = np.exp(s - s.max(axis=1, keepdims=True))
        return (weights * np.tanh(X @ head.v)).sum(axis=1) / weights.sum(axis=1)

    return answers


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("learner", [us.learners.LowRank(), us.learners.Approximate()], ids=["low rank", "approximate"])
@pytest.mark.parametrize(
    "bent", [lambda head: lambda X: 20 * np.tanh(head(X) / 20), tanh_of_values], ids=["20 tanh", "values"]
)
def test_a_bend_of_the_answers_is_no_noise(bent, learner, seed):
    head = us.models.SingleHead.random(6, rank=2, norm=2.0, seed=seed)
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.oracle(bent(head), 6), learner, seed=seed)
