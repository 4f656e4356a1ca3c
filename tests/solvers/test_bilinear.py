"""The solve of the norm-budget design and its two bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.probes.norm_budget import best_cosines, simplex, token_pairs
from unsoftmax.solvers.bilinear import TokenPairSystem


def system(d, ratio, seed):
    v = np.random.default_rng(seed).standard_normal(d)
    design = token_pairs(v, 2.0, 2.0 * ratio, "float64")
    return TokenPairSystem(design.X1, design.X2), v


def logits(s, W):
    return s.X1 @ W @ s.X2.T - np.einsum("jd,de,je->j", s.X2, W, s.X2)[None, :]


shapes = given(d=st.integers(1, 12), ratio=st.floats(1e-6, 1.0), seed=st.integers(0, 1000))


@settings(max_examples=30, deadline=None)
@shapes
def test_solves_what_the_probes_measure(d, ratio, seed):
    s, _ = system(d, ratio, seed)
    W = np.random.default_rng(seed + 1).standard_normal((d, d))
    assert np.linalg.norm(s.solve(logits(s, W)) - W) <= 1e-12 * np.linalg.norm(W)


@settings(max_examples=30, deadline=None)
@shapes
def test_noise_bound_is_never_exceeded_and_not_far(d, ratio, seed):
    s, _ = system(d, ratio, seed)
    rng = np.random.default_rng(seed + 2)
    radius = rng.uniform(0.1, 1, (d, d))
    # The worst right singular vector of the solve, found by power iteration, rounded to the corners of the box.
    basis = np.eye(d * d).reshape(-1, d, d)
    J = np.stack([s.solve(e).ravel() for e in basis], axis=1)
    reached = 0.0
    for start in range(4):
        e = rng.choice([-1.0, 1.0], d * d)
        for _ in range(10 * (start > 0)):
            e = np.sign(J.T @ (J @ (e * radius.ravel())) + 1e-300)
        reached = max(reached, float(np.linalg.norm(J @ (e * radius.ravel()))))
    bound = s.noise_bound(radius)
    assert reached <= bound * (1 + 1e-12)
    assert bound <= 4 * reached
    rms = s.noise_rms(radius)
    assert rms == pytest.approx(np.sqrt(((J * radius.ravel()) ** 2).sum()), rel=1e-9)


@settings(max_examples=30, deadline=None)
@shapes
def test_value_gain_covers_every_direction_of_an_error_in_v(d, ratio, seed):
    s, _ = system(d, ratio, seed)
    rng = np.random.default_rng(seed + 3)
    P, Q = (rng.uniform(1, 2, (d, d)) for _ in range(2))
    J = np.stack([s.solve(x1[:, None] * P + Q * x2[None, :]).ravel() for x1, x2 in zip(s.X1.T, s.X2.T, strict=True)])
    worst = float(np.linalg.norm(J, 2))
    bound = s.value_gain((P, P), (Q, Q))
    assert worst <= bound * (1 + 1e-12)
    assert s.value_gain((P - 0.1, P + 0.1), (Q - 0.1, Q + 0.1)) >= bound


def test_the_simplex_is_regular_and_orthogonal_to_v():
    v = np.array([0.0, 3.0, -4.0, 0.0, 1e-9])
    n, w = simplex(v)
    gram = w @ w.T
    assert np.abs(w @ n).max() < 1e-15
    assert np.allclose(gram, np.where(np.eye(5) == 1, 1.0, -1 / 4), atol=1e-14)


@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.1])
def test_cosines_are_the_best(ratio):
    c1, c2 = best_cosines(ratio, 10**9)
    grid = np.linspace(0.001, 0.999, 500)
    a, b = np.meshgrid(grid, grid)
    best = (np.sqrt((1 - a * a) * (1 - b * b)) * (a + ratio * b)).max()
    assert np.sqrt((1 - c1**2) * (1 - c2**2)) * (c1 + ratio * c2) >= best - 1e-9


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_tokens_are_representable_and_inside(dtype):
    v = np.random.default_rng(0).standard_normal(50)
    for longer, shorter in ((1.0, 1.0), (0.7, 0.3)):
        design = token_pairs(v, longer, shorter, dtype)
        for X, limit in ((design.X1, longer), (design.X2, shorter)):
            assert np.array_equal(X.astype("float32" if dtype == "float64" else dtype).astype(float), X)
            assert np.linalg.norm(X, axis=1).max() <= limit
            assert np.linalg.norm(X, axis=1).min() >= limit * 0.99
