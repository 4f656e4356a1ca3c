"""A declared tolerance that no v can keep is told; a true one never is."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.inversion import Noise
from unsoftmax.verify.precision import least_share


@pytest.mark.parametrize("dim", [1, 3, 8])
@pytest.mark.parametrize("times", [1.0, 4.0])
def test_the_least_share_finds_answers_beyond_the_tolerance(dim, times):
    for seed in range(10):
        rng = np.random.default_rng([seed, dim])
        v, tokens = rng.standard_normal(dim), rng.standard_normal((16, dim))
        read = v + times * 1e-3 * rng.choice([-1, 1], dim)
        y = tokens @ v + times * 1e-3 * rng.choice([-1, 1], 16)
        share = least_share(read, np.sqrt(dim) * 1e-3, tokens, y, Noise(1e-3, 1e-15))
        assert (share <= 1 + 1e-6) if times == 1 else (share > 1)


def test_nothing_is_said_of_measured_noise():
    v = np.ones(2)
    assert least_share(v, 0.1, np.eye(2), v, Noise(0.1, 0.0, measured=True)) is None


def capped(head, cap):
    """The head with scores s replaced by cap tanh(s / cap)."""

    def answer(X):
        s = cap * np.tanh(np.einsum("bnd,de,be->bn", X, head.W, X[:, -1]) / cap)
        e = np.exp(s - s.max(axis=1, keepdims=True))
        return ((e / e.sum(axis=1, keepdims=True)) * (X @ head.v)).sum(axis=1)

    return answer


LEARNERS = [us.learners.Approximate(), us.learners.LowRank(), us.learners.SingleHead()]


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
@pytest.mark.parametrize("limit", [None, 4.0])
@pytest.mark.parametrize("tau", [1e-2, 1e-4])
def test_scores_that_bend_are_no_error_of_w(tau, limit, learner):
    """A cap of five moves natural answers by dozens of tolerances: no stated error of W explains that."""
    for seed in range(3):
        head = us.models.SingleHead.random(6, norm=2.0, seed=seed)
        for cap in (5.0, np.inf):
            answer = capped(head, cap) if np.isfinite(cap) else head

            def rounded(X, answer=answer):
                return np.round(answer(X) / (2 * tau)) * (2 * tau)

            oracle = us.oracle(rounded, 6, tolerance=tau, max_norm=limit)
            if np.isinf(cap):
                recovery = us.recover(oracle, learner, seed=seed)
                assert recovery.certificate.holds
                assert any(claim.name == "one head" for claim in recovery.certificate)
            else:
                with pytest.raises(us.errors.UnsoftmaxError):
                    us.recover(oracle, learner, seed=seed)


def test_hostile_signs_leave_a_right_head_within_its_tolerance():
    """Errors of one sign, or of that of the answer, are honest: the best head misses no value by twice as much."""
    for seed in range(8):
        head = us.models.SingleHead.random(5, norm=2.0, seed=seed)
        for sign in (np.ones_like, np.sign, lambda y: np.sign(np.sin(1e3 * y))):
            oracle = us.oracle(lambda X: (y := head(X)) + 1e-3 * sign(y), 5, tolerance=1e-3, max_norm=2.0)  # noqa: B023
            assert us.recover(oracle, us.learners.Approximate(), seed=seed).certificate.holds
