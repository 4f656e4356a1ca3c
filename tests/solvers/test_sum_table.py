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
    if H > 1 and (np.diff(ratios) / ratios[1:]).min() < 1e-3:
        return
    assert found is not None
    columns = np.linalg.inv(found.rows)
    gaps = np.linalg.norm(columns[:, None] - A[:, :, None], axis=0)
    assert gaps.min(axis=1).max() < 1e-7 * np.linalg.cond(A) * np.linalg.norm(A)


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


@pytest.mark.parametrize("still", [0, 2])
def test_turns_are_eigenvalues(still):
    rng = np.random.default_rng(2)
    theta = np.concatenate([[1.0, 0.2, 0.01], np.zeros(still)])
    A, Xi = rng.standard_normal((14, 2 * len(theta))), rng.standard_normal((2 * len(theta), 12))
    found = shift_operator(A @ Xi, A @ rotation(theta, 1) @ Xi, 2 * len(theta), 1e-6)
    assert np.allclose(found.frequencies, theta, atol=1e-9)
    assert found.off_circle < 1e-9


def test_ladders_are_recognised_and_others_kept():
    ladder = 5e5 ** (-np.arange(8) / 8)
    assert np.array_equal(on_ladder(ladder * (1 + 1e-9), 1e-5), ladder)
    free = np.array([1.0, 0.4, 0.3, 0.01])
    assert on_ladder(free, 1e-5) is free
