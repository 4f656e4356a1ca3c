"""Gauss-Newton for stacks: Jacobians against differences, convergence, and how well parameters are known."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.solvers.stack_heads import Contexts, Heads, factored
from unsoftmax.solvers.stack_models import Deep, Wide
from unsoftmax.solvers.stack_newton import gauss_newton

D, OUT, N = 5, 6, 4
T = np.linalg.qr(np.random.default_rng(0).standard_normal((OUT, D)))[0]


def heads(n=4, r=2, s=2, seed=1, out=OUT):
    draw = np.random.default_rng(seed).standard_normal
    shapes = ((n, D, r), (n, r, D), (n, r), (n, out, s), (n, s, D))
    return Heads(*(0.5 * draw(shape) for shape in shapes))


def deep(seed=1):
    constants = 0.1 * np.random.default_rng(seed).standard_normal((2, OUT))
    return Deep(heads(seed=seed), (1, 3), constants, 1e-2, T)


def behind_a_norm(seed=1):
    constants = 0.1 * np.random.default_rng(seed).standard_normal((2, D))
    return Deep(heads(seed=seed, out=D), (1, 3), constants, 1e-2, np.eye(D), behind=OUT)


def contexts(model, m, seed=2):
    rng = np.random.default_rng(seed)
    q, others = rng.standard_normal((m, D)), rng.standard_normal((m, N, D))
    counts = rng.integers(1, 4, (m, N))
    data = Contexts(q, others, np.log(counts), np.zeros((m, OUT)), rng.uniform(0.3, 3, m))
    return Contexts(data.q, data.others, data.log_counts, model.answers(data), data.scale)


MODELS = {"wide": Wide(heads()), "deep": deep(), "behind a final norm": behind_a_norm()}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_jacobian_against_differences(model) -> None:
    data = contexts(model, 3)
    out, J = model.jacobian(data)
    np.testing.assert_allclose(out, model.answers(data), atol=1e-14)
    h = 1e-6
    for i in range(0, model.flat.size, 7):
        step = np.zeros(model.flat.size)
        step[i] = h
        slope = (model.like(model.flat + step).answers(data) - model.like(model.flat - step).answers(data)) / (2 * h)
        np.testing.assert_allclose(J[:, :, i], slope, atol=1e-8)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_converges_to_rounding_from_a_neighbour(model) -> None:
    data = [contexts(model, 60), contexts(model, 20, seed=5)]
    rng = np.random.default_rng(7)
    start = model.like(model.flat * (1 + 1e-3 * rng.standard_normal(model.flat.size)))
    fit = gauss_newton(start, data, draws=3)
    assert fit.residual < 1e-14
    np.testing.assert_allclose(fit.model.heads.W, model.heads.W, atol=1e-11)
    np.testing.assert_allclose(fit.model.heads.c, model.heads.c, atol=1e-11)
    np.testing.assert_allclose(fit.model.heads.P, model.heads.P, atol=1e-11)


def test_the_moved_models_tell_the_error() -> None:
    model, noise = MODELS["wide"], 1e-7
    data = contexts(model, 80)
    noisy = Contexts(
        data.q,
        data.others,
        data.log_counts,
        data.y + noise * np.random.default_rng(3).standard_normal(data.y.shape),
        data.scale,
    )
    fit = gauss_newton(model, [noisy], draws=8)
    error = np.linalg.norm(fit.model.heads.W - model.heads.W)
    told = [np.linalg.norm(other.heads.W - fit.model.heads.W) for other in fit.moved]
    assert max(told) / 5 < error < 5 * max(told)


def test_a_wrong_order_of_layers_does_not_fit() -> None:
    model = deep()
    data = contexts(model, 60)
    turned = Deep(model.heads.take([3, 0, 1, 2]), (1, 3), model.constants, model.eps, T)
    assert gauss_newton(turned, [data], steps=6).residual > 1e-3


def test_factors_of_full_matrices() -> None:
    model = heads()
    again = factored(model.W, model.c, model.P, 2, 2)
    np.testing.assert_allclose(again.W, model.W, atol=1e-14)
    np.testing.assert_allclose(again.c, model.c, atol=1e-14)
    np.testing.assert_allclose(again.P, model.P, atol=1e-14)
