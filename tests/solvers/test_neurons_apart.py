"""Neurons from Jacobians, more of them than the space has dimensions; and the whole encoder's derivative."""

from __future__ import annotations

import numpy as np
import pytest

from tests.solvers.test_stack_newton import OUT, D, T, heads
from unsoftmax.solvers.neurons_apart import ACTIVATIONS, Neurons, count_terms, fit_neurons, rank_one_terms
from unsoftmax.solvers.stack_heads import Contexts
from unsoftmax.solvers.stack_models import Deep


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_more_neurons_than_dimensions(activation) -> None:
    rng = np.random.default_rng(1)
    m, d, dim, p, K = 12, 9, 8, 4, 24
    A, b, C = rng.standard_normal((m, dim)) / 3, rng.standard_normal(m) / 2, rng.standard_normal((d, m))
    basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    q = rng.standard_normal((K, dim - p)) @ basis[:, p:].T
    q *= 3 / np.linalg.norm(q, axis=1, keepdims=True)
    tangents = np.array([np.linalg.qr(np.column_stack([point, basis]))[0][:, 1:dim] for point in q])
    tangents[:, :, :p] = basis[:, :p]
    slopes = ACTIVATIONS[activation][1](q @ A.T + b)
    J = np.einsum("di,ki,if,kfj->kdj", C, slopes, A, tangents, optimize=True)
    assert count_terms(J[:, :, :p]) == m
    assert count_terms(J[: m - 2, :, :p]) is None
    found = fit_neurons(J, tangents, q, *rank_one_terms(J[:, :, :p], m, rng), activation)
    order = np.argmin(np.linalg.norm(found.A[:, None] - A, axis=2), axis=1)
    assert sorted(order) == list(range(m))
    for mine, true in ((found.A, A[order]), (found.b, b[order]), (found.C, C[:, order])):
        np.testing.assert_allclose(mine, true, atol=1e-4)
    other = next(name for name in ACTIVATIONS if name != activation)
    wrong = fit_neurons(J, tangents, q, *rank_one_terms(J[:, :, :p], m, rng), other)
    assert wrong.misfit > 100 * found.misfit


def test_derivative_of_an_encoder_against_differences() -> None:
    rng = np.random.default_rng(0)
    draw = rng.standard_normal
    networks = tuple(Neurons(draw((5, D)), draw(5), draw((OUT, 5)), 0.0) for _ in range(2))
    model = Deep(heads(n=3, seed=3), (1, 2), 0.1 * draw((4, OUT)), 1e-2, T, networks=networks)
    q = draw((4, D))
    data = Contexts(q, draw((4, 3, D)), np.zeros((4, 3)), np.zeros((4, OUT)), np.full(4, 0.7))
    flat, J = model.flat, model.jacobian(data)[1]
    for i in [*rng.choice(flat.size, 60, replace=False).tolist(), flat.size - 1]:
        step = np.zeros(flat.size)
        step[i] = 1e-5
        moved = (model.like(flat + step).answers(data) - model.like(flat - step).answers(data)) / 2e-5
        np.testing.assert_allclose(moved, J[:, :, i], atol=1e-6 * max(1.0, np.abs(J).max()))
