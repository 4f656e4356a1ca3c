"""Least squares over many designs: derivative, exact recovery with shared errors, and the law of what noise leaves."""

from __future__ import annotations

import numpy as np
import pytest

from tests.learners.noisy import gaussian_head
from unsoftmax.probes.norm_budget import turned_pairs
from unsoftmax.solvers.blocks import SHARED, Blocks, Linearised, Singles, deviation_at_most, fit, spread


def answered(dim, blocks, seed, noise=0.0, constant=0.0, away=0.0):
    """A head, and its answers to singles and pairs of random sign, with the errors given."""
    rng = np.random.default_rng(seed)
    head = gaussian_head(dim, 2.0, seed)
    X = rng.standard_normal((blocks * dim, dim))
    X1, X2 = turned_pairs(head.v, 1.0, 1.0, "float64", blocks, rng)
    signs = rng.choice([-1.0, 1.0], len(X)), rng.choice([-1.0, 1.0], (blocks, dim, dim))
    pairs = np.stack(np.broadcast_arrays(X1[:, :, None], X2[:, None, :]), axis=3).reshape(-1, 2, dim)
    f = head(X[:, None]), head(pairs).reshape(blocks, dim, dim)
    y = [
        f + sign * constant + np.sign(f) * away + noise * rng.standard_normal(f.shape)
        for f, sign in zip(f, signs, strict=True)
    ]
    return head, Singles(X, signs[0], y[0]), Blocks(X1, X2, signs[1], y[1])


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_adjoint_is_the_transpose_and_rows_are_the_matrix(dim):
    head, singles, blocks = answered(dim, 3, dim)
    at = Linearised(singles, [blocks], np.zeros(SHARED), head.v, head.W)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(SHARED + dim + dim * dim)
    r = [rng.standard_normal(part.shape) for part in at.residuals]
    forward = at.apply(x)
    assert np.isclose(sum((a * b).sum() for a, b in zip(forward, r, strict=True)), at.adjoint(r) @ x)
    assert np.allclose(at.rows() @ x, np.concatenate([part.ravel() for part in forward]))


@pytest.mark.parametrize("dim", [2, 6])
def test_shared_errors_are_told_from_the_head(dim):
    head, singles, blocks = answered(dim, 6, dim, constant=0.3, away=-0.02)
    found = fit(singles, [blocks], head.v, head.W)
    assert np.allclose(found.W, head.W, atol=1e-6)
    assert np.allclose([found.constant, found.away], [0.3, -0.02], atol=1e-6)


def test_answers_of_zero_are_left_out():
    head, singles, blocks = answered(3, 8, 1)
    swallowed = np.where(np.abs(blocks.y) < 0.1, 0.0, blocks.y)
    assert (swallowed == 0).sum() > 10
    found = fit(singles, [Blocks(blocks.X1, blocks.X2, blocks.sign, swallowed)], head.v, np.zeros((3, 3)))
    assert np.allclose(found.W, head.W, atol=1e-8)


@pytest.mark.parametrize("dim", [2, 4])
def test_the_spread_is_what_noise_leaves(dim):
    head, singles, blocks = answered(dim, 20, 7)
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        noisy = Blocks(blocks.X1, blocks.X2, blocks.sign, blocks.y + 1e-4 * rng.standard_normal(blocks.y.shape))
        singly = Singles(singles.X, singles.sign, singles.y + 1e-4 * rng.standard_normal(len(singles.y)))
        errors.append(np.linalg.norm(fit(singly, [noisy], head.v, head.W).W - head.W))
    stated = 1e-4 * spread(singles, [blocks], head.v, head.W).W
    assert max(errors) < stated < 4 * np.sqrt(np.mean(np.square(errors)))


def test_a_deviation_of_few_residuals_is_widened():
    assert deviation_at_most(1.0, 12) > 2 > deviation_at_most(1.0, 1000) > 1
