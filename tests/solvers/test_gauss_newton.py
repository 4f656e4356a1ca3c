"""Damped Gauss-Newton against known minima; both solvers of its equations agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from tests.fitting.logs import heads, tokens
from unsoftmax.fitting.blocks import Blocks
from unsoftmax.fitting.heads import Eliminated, Heads
from unsoftmax.fitting.shape import Shape
from unsoftmax.solvers.gauss_newton import Dense, Descent, cholesky, conjugate, descend


@dataclass(frozen=True)
class Rosenbrock:
    """Residuals 10 (y - x^2) and 1 - x: the minimum 0 at (1, 1) lies at the end of a curved valley."""

    def at(self, x):
        return Dense(np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]]), np.array([[-20 * x[0], 10.0], [-1.0, 0.0]]))


@pytest.mark.parametrize(
    "steps", [cholesky, conjugate(most=4, least=1e-12, largest=1e-12)], ids=["cholesky", "conjugate"]
)
@pytest.mark.parametrize("start", [(-1.2, 1.0), (3.0, -2.0), (0.0, 0.0)])
def test_a_curved_valley_is_followed_to_its_end(steps, start) -> None:
    end = descend(Rosenbrock(), np.array(start), Descent(damping=1e-2, iterations=200, arrived=1e-24), steps=steps)
    assert np.abs(end.x - 1).max() < 1e-9


def problem(rank, outputs=1, seed=0):
    X = tokens(90, dim=4, length=5, seed=seed)
    y = heads(2, 4, seed=seed)(X)
    log = us.Log(X, y if outputs == 1 else np.stack([y, y**2, -y], axis=1)[:, :outputs])
    return Heads(Blocks(log, np.arange(90)), Shape(2, 4, outputs, rank))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), rank=st.sampled_from([None, 1, 2]), outputs=st.sampled_from([1, 3]))
def test_products_are_those_of_the_jacobian_and_of_finite_differences(seed, rank, outputs) -> None:
    p, rng = problem(rank, outputs), np.random.default_rng(seed)
    x, step, rows = (rng.standard_normal(n) for n in (p.shape.unknowns, p.shape.unknowns, 90 * outputs))
    at = p.at(x).weighted(rng.uniform(0.5, 2.0, 90 * outputs))
    J = at.jacobian()
    size = np.linalg.norm(J)
    assert np.linalg.norm(J @ step - at.forward(step)) < 1e-5 * size * np.linalg.norm(step)
    assert np.linalg.norm(J.T @ rows - at.adjoint(rows)) < 1e-5 * size * np.linalg.norm(rows)
    assert np.linalg.norm(J.T @ at.residual - at.gradient()) < 1e-12 * size * np.linalg.norm(at.residual)
    assert np.abs(at.normal() - J.T @ J).max() < 1e-12 * size**2
    h = 1e-6
    moved = (p.at(x + h * step).residual - p.at(x - h * step).residual) / (2 * h)
    plain = p.at(x).jacobian() @ step
    assert np.linalg.norm(moved - plain) < 1e-5 * (np.linalg.norm(plain) + 1)


def test_without_a_matrix_the_steps_are_the_same() -> None:
    p = problem(None)
    x = np.random.default_rng(1).standard_normal(p.shape.unknowns) * 0.3
    at = p.at(x)
    dense = cholesky(at)(1e-9)
    free = conjugate(most=400, least=1e-6, largest=1e-6)(at)(1e-9)
    assert np.linalg.norm(at.jacobian() @ (dense - free)) < 1e-3 * np.linalg.norm(at.jacobian() @ dense)


def test_elimination_leaves_the_residual_of_the_best_values() -> None:
    p = problem(None, outputs=3)
    scores = np.random.default_rng(2).standard_normal(p.shape.scores) * 0.3
    P, _ = Eliminated(p).best(scores)
    at = p.at(np.concatenate([scores, P.ravel()]))
    assert np.allclose(Eliminated(p).at(scores).residual, at.residual)
    assert np.abs(at.jacobian()[:, p.shape.scores :].T @ at.residual).max() < 1e-9


def test_a_weighted_descent_forgets_no_better_point() -> None:
    p = problem(None)
    x = np.random.default_rng(3).standard_normal(p.shape.unknowns) * 0.3
    end = descend(p, x, Descent(iterations=10), weigh=lambda at: 1 / (1 + np.abs(at.residual)))
    assert end.cost <= float(p.at(x).residual @ p.at(x).residual)
