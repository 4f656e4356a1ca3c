"""Programs over rank-one measurements: against their definitions, against CVXPY, and where they must give up."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.solvers.rank_one import RankOne, alternating, balanced, gauss_newton, nuclear_norm, residual


def instance(d: int, r: int, per_unknown: float, seed: int):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((d, r)) @ rng.standard_normal((r, d)) / d
    m = int(per_unknown * r * (2 * d - r))
    measurements = RankOne(rng.standard_normal((m, d)), rng.standard_normal((m, d)))
    return W, measurements, measurements(W)


def test_the_operator_is_what_it_says() -> None:
    W, measurements, t = instance(7, 2, 1.5, 0)
    assert np.allclose(t, [a @ W @ b for a, b in zip(measurements.A, measurements.B, strict=True)])
    y = np.random.default_rng(1).standard_normal(len(t))
    assert np.isclose(t @ y, np.sum(W * measurements.adjoint(y)))
    X, multipliers = measurements.nearest(np.ones((7, 7)), t)
    assert np.allclose(measurements(X), t)
    assert np.allclose(X, np.ones((7, 7)) - measurements.adjoint(multipliers))


def test_a_gauss_newton_step_near_the_solution_is_quadratic() -> None:
    W, measurements, t = instance(12, 2, 4, 0)
    left, s, right = np.linalg.svd(W)
    K, Q = left[:, :2] * np.sqrt(s[:2]), right[:2].T * np.sqrt(s[:2])
    rng = np.random.default_rng(0)
    start = (K + 1e-4 * rng.standard_normal(K.shape), Q + 1e-4 * rng.standard_normal(Q.shape))
    assert residual(measurements, t, *gauss_newton(measurements, t, *start)) < 1e-6
    K2, Q2 = balanced(3 * K, Q / 3)
    assert np.allclose(K2 @ Q2.T, W)
    assert np.allclose(K2.T @ K2, Q2.T @ Q2)


@pytest.mark.parametrize(("d", "r", "per_unknown"), [(16, 1, 4), (16, 2, 4), (12, 2, 1.6)])
def test_nuclear_norm_agrees_with_cvxpy(d: int, r: int, per_unknown: float) -> None:
    cp = pytest.importorskip("cvxpy")
    W, measurements, t = instance(d, r, per_unknown, seed=d + r)
    X = cp.Variable((d, d))
    seen = cp.sum(cp.multiply(measurements.A @ X, measurements.B), axis=1)
    problem = cp.Problem(cp.Minimize(cp.normNuc(X)), [seen == t])
    problem.solve(solver=cp.SCS, eps=1e-8, max_iters=20000)
    ours = nuclear_norm(measurements, t)
    assert ours.converged
    assert abs(ours.gap) <= 1e-6
    assert np.linalg.norm(ours.W - X.value) <= 1e-5 * np.linalg.norm(X.value)
    assert np.linalg.norm(ours.W, "nuc") == pytest.approx(problem.value, rel=1e-5)
    exact = np.linalg.norm(ours.W - W) <= 1e-6 * np.linalg.norm(W)
    assert exact == (per_unknown == 4)  # below the transition the program has another optimum, the same in both


def test_the_duality_gap_tells_an_unfinished_run() -> None:
    _, measurements, t = instance(16, 2, 3, 0)
    stopped = nuclear_norm(measurements, t, max_iterations=5)
    assert not stopped.converged
    assert stopped.gap > 1e-3
    assert stopped.iterations == 5


def test_nothing_measured_is_the_zero_matrix() -> None:
    _, measurements, t = instance(8, 1, 3, 0)
    found = nuclear_norm(measurements, 0 * t)
    assert found.converged
    assert not found.W.any()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("per_unknown", [2.5, 4])
def test_alternating_minimisation(per_unknown: float, seed: int) -> None:
    W, measurements, t = instance(24, 2, per_unknown, seed)
    found = alternating(measurements, t, 2)
    assert found.converged
    assert np.linalg.norm(found.K @ found.Q.T - W) <= 1e-10 * np.linalg.norm(W)


def test_alternating_minimisation_trims_a_rank_that_is_too_large() -> None:
    _, measurements, t = instance(24, 2, 6, 0)
    found = alternating(measurements, t, 3)
    assert found.converged
    assert found.K.shape == (24, 2)


def test_alternating_minimisation_says_when_the_rank_is_too_small() -> None:
    _, measurements, t = instance(24, 3, 3, 0)
    found = alternating(measurements, t, 2)
    assert not found.converged
    assert found.residual > 0.01
