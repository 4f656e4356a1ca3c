"""Heads told apart by algebra, and fitted from a neighbour, against sums of sigmoids that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.special import expit

from unsoftmax.solvers.head_separation import count_heads, separate, settings_needed
from unsoftmax.solvers.logit_fit import fit_logits

K = np.array([0.25, 1.0, 4.0])


def mixture(n, d, seed, m=None, noise=0.0, features=5):
    rng = np.random.default_rng(seed)
    m = settings_needed(n, 3, 1.6) + 4 if m is None else m
    F = np.column_stack([np.ones(m), rng.standard_normal((m, features - 1))])
    theta, R = rng.standard_normal((n, features)), rng.standard_normal((d, n))
    t = F @ theta.T
    Y = expit(t[:, None] - np.log(K)[None, :, None]) @ R.T
    return Y + noise * rng.standard_normal(Y.shape), t, R, F, theta


def matched(found, true):
    """Worst relative gap of columns after matching."""
    cost = np.linalg.norm(found[:, :, None] - true[:, None, :], axis=0) / np.linalg.norm(true, axis=0)
    rows, columns = linear_sum_assignment(cost)
    return cost[rows, columns].max()


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 6), spare=st.integers(0, 3), seed=st.integers(0, 10**6))
def test_heads_come_apart_exactly_and_in_no_order(n, spare, seed) -> None:
    Y, _, R, _, _ = mixture(n, n + spare, seed)
    assert count_heads(Y, 1e-9) == n
    found = separate(Y, K, n, np.random.default_rng(seed))
    assert found is not None
    # Random sigmoids can be nearly alike: the digits that are left follow from how far the solutions stand apart.
    assert matched(found.R, R) <= max(1e-6, 1e3 / found.isolation)


def test_as_many_heads_as_outputs() -> None:
    Y, t, R, _, _ = mixture(8, 8, 3)
    found = separate(Y, K, 8, np.random.default_rng(0))
    assert matched(found.R, R) < 1e-6
    trusted = found.reliability.min(axis=1) > 0
    order = linear_sum_assignment(np.linalg.norm(found.R[:, :, None] - R[:, None], axis=0))[1]
    np.testing.assert_allclose(found.t[trusted], t[trusted][:, order], atol=1e-5)


def test_residues_may_share_their_range() -> None:
    """What hard attention cannot tell apart: all residues in a space barely larger than their number."""
    Y, _, R, _, _ = mixture(5, 5, 7)
    turned = np.linalg.qr(np.random.default_rng(1).standard_normal((40, 40)))[0][:, :5]
    found = separate(Y @ turned.T, K, 5, np.random.default_rng(0))
    assert matched(turned.T @ found.R, R) < 1e-7


def test_more_heads_than_outputs_do_not_pass() -> None:
    Y, _, _, _, _ = mixture(7, 4, 5, m=60)
    assert count_heads(Y, 1e-9) == 4
    found = separate(Y, K, 4, np.random.default_rng(0))
    assert found is None or found.isolation < 100


def test_isolation_follows_the_noise() -> None:
    exact, rough = (mixture(4, 6, 11, noise=noise)[0] for noise in (0.0, 1e-6))
    a, b = (separate(Y, K, 4, np.random.default_rng(0)).isolation for Y in (exact, rough))
    assert a > 1e6 > b > 100


@pytest.mark.parametrize("n", [1, 4, 8])
def test_fit_from_a_neighbour(n) -> None:
    rng = np.random.default_rng(n)
    Y, _, R, F, theta = mixture(n, n + 2, 20 + n, m=n + 16)
    log_k = np.log(K)[rng.integers(0, 3, len(F))]
    Y = expit(F @ theta.T - log_k[:, None]) @ R.T
    found = fit_logits(theta + 0.03 * rng.standard_normal(theta.shape), F, log_k, Y)
    assert found.residual < 1e-12
    np.testing.assert_allclose(found.theta, theta, atol=1e-7)
    np.testing.assert_allclose(found.R, R, atol=1e-6)


def test_fit_says_when_it_is_stuck() -> None:
    rng = np.random.default_rng(0)
    found = fit_logits(
        rng.standard_normal((2, 3)), rng.standard_normal((30, 3)), np.zeros(30), rng.standard_normal((30, 4))
    )
    assert found.residual > 0.1
