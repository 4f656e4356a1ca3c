"""Stacks without norms for Gauss-Newton: the model's answers, the Jacobian against differences, convergence."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.solvers.plain_stack import Plain, Sequences
from unsoftmax.solvers.stack_newton import gauss_newton

D = 5


def plain(causal):
    target = us.models.AttentionStack.random(D, 2, 2, 3, norm=None, causal=causal, seed=1).canonical()
    parts = (np.concatenate([getattr(layer, name) for layer in target.layers]) for name in "WcP")
    return target, Plain(*parts, target.layers[-1].constant, (2, 2), causal)


def sequences(model, m, seed=2):
    X = 0.7 * np.random.default_rng(seed).standard_normal((m, 4, D))
    return Sequences(X, model.answers(Sequences(X, np.zeros((m, D)))))


@pytest.mark.parametrize("causal", [False, True])
def test_answers_are_those_of_the_stack(causal) -> None:
    target, model = plain(causal)
    data = sequences(model, 6)
    np.testing.assert_allclose(data.y, target(data.tokens) - data.tokens[:, -1], atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_jacobian_against_differences(causal) -> None:
    _, model = plain(causal)
    data = sequences(model, 3)
    out, J = model.jacobian(data)
    np.testing.assert_allclose(out, data.y, atol=1e-14)
    h = 1e-6
    for i in range(0, model.flat.size, 5):
        step = np.zeros(model.flat.size)
        step[i] = h
        slope = (model.like(model.flat + step).answers(data) - model.like(model.flat - step).answers(data)) / (2 * h)
        np.testing.assert_allclose(J[:, :, i], slope, atol=1e-8)


def test_converges_to_rounding_from_a_neighbour() -> None:
    _, model = plain(True)
    start = model.like(model.flat * (1 + 1e-3 * np.random.default_rng(7).standard_normal(model.flat.size)))
    fit = gauss_newton(start, [sequences(model, 80)], draws=2)
    assert fit.residual < 1e-14
    np.testing.assert_allclose(fit.model.W, model.W, atol=1e-10)
    np.testing.assert_allclose(fit.model.P, model.P, atol=1e-10)
