"""Sum tables, score roots and shift operators: each against what it was made from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.solvers.score_roots import score_roots
from unsoftmax.solvers.shift_operator import on_ladder, rotation, shift_operator
from unsoftmax.solvers.sum_table import separate


@given(seed=st.integers(0, 200), H=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_heads_come_back_from_a_table_of_sums(seed, H):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((H, H))
    X, Y = np.exp(rng.standard_normal((H, 5))), np.exp(rng.standard_normal((H, 5)))
    cells = np.array([(j, i) for j in range(5) for i in range(5)])
    sums = 1 + X[:, cells[:, 1]] + Y[:, cells[:, 0]]
    slopes = rng.standard_normal((H, H))
    J = [A @ np.diag(-1 / (1 + X[:, 0] + Y[:, j]) ** 2) @ slopes for j in (0, 1)]
    found = separate(J[0], J[1], (1 / sums).T @ A.T, cells, A.sum(axis=1))
    ratios = np.sort(((1 + X[:, 0] + Y[:, 0]) / (1 + X[:, 0] + Y[:, 1])) ** 2)
    if H > 1 and ((np.diff(ratios) / ratios[1:]).min() < 1e-3 or np.linalg.cond(A) > 1e3):
        return
    assert found is not None
    columns = np.linalg.inv(found.rows)
    gaps = np.linalg.norm(columns[:, None] - A[:, :, None], axis=0)
    assert gaps.min(axis=1).max() < 1e-7 * np.linalg.cond(A) * np.linalg.norm(A)


def _told(H, others, seed, noise=0.0):
    """A table of H heads, the last of which leaves the others `others` of the usual weight; answers rounded by `noise`,
    relative to the largest. What the others weigh (H, cells), and what was found."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((H, H))
    X, Y = np.exp(rng.standard_normal((2, H, 5)))
    X[-1], Y[-1] = others * X[-1], others * Y[-1]
    cells = np.array([(j, i) for j in range(5) for i in range(5)])
    beside = X[:, cells[:, 1]] + Y[:, cells[:, 0]]
    slopes = rng.standard_normal((H, H)) * X[:, :1]
    J = [A @ np.diag(-1 / (1 + X[:, 0] + Y[:, j]) ** 2) @ slopes for j in (0, 1)]
    F = (1 / (1 + beside)).T @ A.T
    F = F + noise * np.linalg.norm(F, axis=1).max() * rng.standard_normal(F.shape)
    return beside, A, separate(J[0], J[1], F, cells, A.sum(axis=1))


@pytest.mark.parametrize("seed", range(8))
def test_the_rise_says_what_noise_leaves_of_the_weights_beside_a_token(seed):
    noise = 1e-11
    for others in (1.0, 1e-4):
        beside, A, found = _told(3, others, seed, noise)
        order = np.argmin(np.linalg.norm(np.linalg.inv(found.rows)[:, :, None] - A[:, None], axis=0), axis=1)
        off = np.abs((found.sums - 1) / beside[order] - 1).max()
        assert off < 10 * noise * found.rise
        assert off > noise * found.rise / 100


@pytest.mark.parametrize("seed", range(8))
def test_a_head_that_looks_at_one_token_alone_raises_noise(seed):
    assert _told(3, 1e-4, seed)[2].rise > 100 * _told(3, 1.0, seed)[2].rise


def test_no_table_of_sums_is_none():
    rng = np.random.default_rng(0)
    cells = np.array([(j, i) for j in range(4) for i in range(4)])
    J1, J2 = rng.standard_normal((2, 3, 3))
    F = rng.uniform(0.1, 1, (16, 3))
    found = separate(J1, J2, F, cells, np.ones(3))
    assert found is None or found.residual > 1e-3


def test_scores_are_roots():
    rng = np.random.default_rng(1)
    H, E, s = 3, np.exp(rng.standard_normal((3, 5))), rng.standard_normal(3)
    columns = rng.standard_normal((8, H))
    alpha = np.exp(s)[:, None] / (np.exp(s)[:, None] + E)
    found = score_roots((columns @ alpha).T, columns.sum(axis=1), E, np.ones((H, 1)))
    assert np.allclose(np.log(found.exps), s, atol=1e-9)
    assert np.allclose(found.columns, columns, atol=1e-9)


def test_errors_of_what_is_written_say_which_heads_hardly_show():
    """Two heads that weigh a token by a thousandth share its answers, and what each writes is lost among them."""
    H, noise, rises = 3, 1e-13, []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        E, exps = np.exp(rng.standard_normal((H, 5))), np.array([1.0, 1e-3, 1e-3])[:, None]
        columns, alpha = rng.standard_normal((8, H)), exps / (exps + E)
        Y, whole = (columns @ alpha).T, columns.sum(axis=1)
        found = score_roots(Y + noise * rng.standard_normal(Y.shape), whole, E, np.ones((H, 1)))
        off = np.linalg.norm(found.columns - columns, axis=0) / np.linalg.norm(columns, axis=0)
        assert (off <= 30 * noise * found.errors).all()
        rises.append(found.errors)
    assert np.median(rises, axis=0)[1:].min() > 10 * np.median(rises, axis=0)[0]


def test_a_root_beside_a_mere_dip_is_found():
    """The fifth head's curve comes within 1e-8 of the space at s = -0.048 and meets it 0.008 further on."""
    E = np.array(
        [
            [36.6961, 23.1229, 38.7001, 23.6642, 45.6026, 23.8046, 26.0271, 26.6091, 23.764],
            [2.075, 10.6902, 6.6233, 5.8883, 2.3654, 7.8484, 6.0595, 2.8614, 6.2446],
            [6.1832, 14.5621, 10.8039, 10.3238, 9.2555, 10.3428, 11.3149, 8.3668, 9.0525],
            [9.5128, 7.6239, 9.2652, 12.3471, 8.828, 7.3402, 9.166, 10.2098, 11.0198],
            [2.9676, 2.5923, 2.7054, 2.575, 3.1164, 3.0344, 2.7433, 2.7114, 3.049],
            [14.8867, 14.6494, 14.5702, 15.0657, 14.9414, 14.3829, 15.212, 14.7215, 15.2897],
            [5.9044, 8.1672, 6.7654, 7.6043, 5.7884, 7.0331, 6.6625, 5.5009, 7.6317],
            [26.6638, 53.7367, 33.3128, 36.6047, 29.6693, 33.1493, 47.1718, 27.6052, 35.5838],
        ]
    )
    exps = np.array([3.9687, 0.351, 0.1863, 0.4901, 0.96, 2.1089, 0.3449, 0.3983])
    shares = np.array([0.3945, 0.3519, 0.3248, 0.3778, 0.2309, 0.189, 0.2565, 0.2359])
    columns = np.random.default_rng(0).standard_normal((12, 8))
    alpha = exps[:, None] / (exps[:, None] + E)
    found = score_roots((columns @ alpha).T, columns @ shares, E, shares[:, None])
    assert np.allclose(found.exps, exps, rtol=1e-8)
    assert np.allclose(found.columns, columns, atol=1e-7)


@pytest.mark.parametrize("still", [0, 2])
def test_turns_are_eigenvalues(still):
    rng = np.random.default_rng(2)
    theta = np.concatenate([[1.0, 0.2, 0.01], np.zeros(still)])
    A, Xi = rng.standard_normal((14, 2 * len(theta))), rng.standard_normal((2 * len(theta), 12))
    found = shift_operator(A @ Xi, A @ rotation(theta, 1, 2 * len(theta)) @ Xi, 2 * len(theta), 1e-6)
    assert np.allclose(found.frequencies, theta, atol=1e-9)
    assert found.off_circle < 1e-9


def test_errors_move_turns_by_no_more_than_they_rise():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        theta = np.array([1.0, 0.2, 0.01])
        A, Xi = rng.standard_normal((8, 6)), rng.standard_normal((6, 7)) * 10.0 ** -np.arange(6)[:, None]
        Y0, Y1 = A @ Xi, A @ rotation(theta, 1, 6) @ Xi
        found = shift_operator(*(Y + 1e-9 * rng.standard_normal(Y.shape) for Y in (Y0, Y1)), 6, 1e-6)
        assert found.off_circle <= 3e-9 * found.rise


def test_ladders_are_recognised_and_others_kept():
    ladder = 5e5 ** (-np.arange(8) / 8)
    assert np.array_equal(on_ladder(ladder * (1 + 1e-9), 1e-5), ladder)
    free = np.array([1.0, 0.4, 0.3, 0.01])
    assert on_ladder(free, 1e-5) is free
