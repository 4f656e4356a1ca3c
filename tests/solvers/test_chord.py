"""Gauss-Newton that keeps its normal equations: the same minimum with fewer of them."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.solvers.chord import Descent, factored, settle

HOW = Descent(1e-8, factor=10.0, least=1e-15, tries=8, steps=30, near=1e-4, arrived=0.3, stalled=1e-3)


class Bent:
    """A x + bend (A x)^3 = y, with noise in y."""

    def __init__(self, bend=0.1, noise=1e-9):
        rng = np.random.default_rng(0)
        self.A, self.x, self.bend = rng.standard_normal((30, 6)), rng.standard_normal(6), bend
        self.y = self.answers(self.x) + noise * rng.standard_normal(30)
        self.formed = 0

    def answers(self, x):
        t = self.A @ x
        return t + self.bend * t**3

    def jacobian(self, x):
        return (1 + 3 * self.bend * (self.A @ x) ** 2)[:, None] * self.A

    def cost(self, x):
        return float(np.linalg.norm(self.y - self.answers(x)))

    def normal(self, x):
        self.formed += 1
        J = self.jacobian(x)
        return np.tril(J.T @ J), self.gradient(x)

    def gradient(self, x):
        return self.jacobian(x).T @ (self.y - self.answers(x))


def test_few_equations_are_formed_and_the_minimum_is_reached() -> None:
    problem = Bent()
    found = settle(problem, problem.x + 0.1, HOW)
    assert problem.formed <= 4
    rest = problem.y - problem.answers(found.x)
    assert np.abs(problem.jacobian(found.x).T @ rest).max() < 1e-3 * np.linalg.norm(rest)
    np.testing.assert_allclose(found.x, problem.x, atol=1e-8)
    assert found.cost == problem.cost(found.x)
    G, at = found.formed
    np.testing.assert_allclose(G, np.tril(problem.jacobian(at).T @ problem.jacobian(at)))


def test_a_misfit_that_is_enough_ends_it() -> None:
    problem = Bent()
    found = settle(problem, problem.x, Descent(**(vars(HOW) | {"enough": 1.0})))
    assert (problem.formed, found.formed) == (0, None)


def test_steps_that_are_too_long_are_damped() -> None:
    problem = Bent(bend=10.0, noise=0.0)
    found = settle(problem, problem.x + 0.3, HOW)
    np.testing.assert_allclose(found.x, problem.x, atol=1e-6)


@pytest.mark.parametrize("rank", [4, 3])
def test_equations_that_are_singular_are_solved_where_they_say_something(rank) -> None:
    B = np.random.default_rng(0).standard_normal((rank, 4))
    G, x = B.T @ B, np.arange(4.0)
    np.testing.assert_allclose(G @ factored(np.tril(G), 1e-13)(G @ x), G @ x, rtol=1e-6)
