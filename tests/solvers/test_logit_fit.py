"""Heads at one displacement from a neighbour; answers that a kink spoils are left out."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from unsoftmax.solvers.logit_fit import fit_logits, fit_smooth


def drawn(m=24, features=6, n=3, d=8, seed=0):
    rng = np.random.default_rng(seed)
    theta, R = rng.standard_normal((n, features)), rng.standard_normal((d, n))
    F = np.column_stack([np.ones(m), rng.standard_normal((m, features - 1))])
    log_k = rng.uniform(-1, 1, m)
    return theta, R, F, log_k, expit(F @ theta.T - log_k[:, None]) @ R.T


def test_a_neighbour_is_enough() -> None:
    theta, R, F, log_k, Y = drawn()
    fit = fit_logits(theta + 0.05, F, log_k, Y)
    assert fit.residual < 1e-13
    np.testing.assert_allclose(fit.theta, theta, atol=1e-11)
    np.testing.assert_allclose(fit.R, R, atol=1e-11)


def test_heads_one_by_one_come_near(monkeypatch) -> None:
    """Steps by blocks do most of the work: one set of equations of all heads is formed at the end."""
    from unsoftmax.solvers.logit_fit import _Logits

    formed, normal = [], _Logits.normal
    monkeypatch.setattr(_Logits, "normal", lambda self, x: formed.append(1) or normal(self, x))
    theta, _, F, log_k, Y = drawn(m=48, features=10, n=12, d=16)
    fit = fit_logits(theta + 0.05, F, log_k, Y)
    np.testing.assert_allclose(fit.theta, theta, atol=1e-9)
    assert len(formed) <= 2


def test_spoiled_answers_are_left_out() -> None:
    theta, R, F, log_k, Y = drawn()
    Y[[3, 11]] += 1e-4 * np.random.default_rng(1).standard_normal((2, 8))
    assert np.abs(fit_logits(theta, F, log_k, Y).theta - theta).max() > 1e-6
    fit = fit_smooth(theta + 0.05, F, log_k, Y, 1e-9)
    np.testing.assert_allclose(fit.theta, theta, atol=1e-9)
    np.testing.assert_allclose(fit.R, R, atol=1e-9)


def test_answers_of_something_else_are_not_trimmed_away() -> None:
    theta, _, F, log_k, Y = drawn()
    Y += 0.1 * np.random.default_rng(1).standard_normal(Y.shape)
    assert fit_smooth(theta, F, log_k, Y, 1e-9).residual > 1e-2


def test_a_step_beyond_all_numbers_is_a_large_misfit() -> None:
    """Scores of inf - inf have no weights, and least squares of them no solution: a run had ended in numpy's error."""
    from unsoftmax.solvers.logit_fit import _Logits

    theta, _, F, log_k, Y = drawn()
    beyond = np.full(theta.size, np.nan)
    assert _Logits(theta.shape, F, log_k, Y).cost(beyond) == np.inf
