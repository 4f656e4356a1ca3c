"""docs/theory/notes/low-rank.md."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us


def low_rank(d, r, seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, r)) @ rng.standard_normal((r, d)), rng


@pytest.mark.parametrize(("d", "r"), [(6, 1), (10, 3), (12, 12)])
def test_lemma_1_sketch(d, r) -> None:
    W, rng = low_rank(d, r, d)
    for k in range(1, d + 1):
        assert np.linalg.matrix_rank(W @ rng.standard_normal((d, k))) == min(k, r)


def test_lemma_2_one_query_tests_the_rank() -> None:
    W, rng = low_rank(9, 4, 0)
    for k in (1, 2, 3, 4):
        columns = W @ rng.standard_normal((9, k))
        off = np.eye(9) - columns @ np.linalg.pinv(columns)
        readings = np.abs([(off @ rng.standard_normal(9)) @ W @ rng.standard_normal(9) for _ in range(100)])
        assert readings.max() < 1e-10 if k == 4 else readings.min() > 1e-10


def test_lemma_2_with_v_in_the_range() -> None:
    """v + a and v - a read what a alone cannot, and the learner meets its count there too."""
    W, rng = low_rank(9, 4, 0)
    columns = W @ rng.standard_normal((9, 2))
    v, b = columns @ rng.standard_normal(2), rng.standard_normal(9)
    a = (np.eye(9) - columns @ np.linalg.pinv(columns)) @ rng.standard_normal(9)
    assert abs(a @ v) < 1e-12 * np.linalg.norm(v)
    assert ((v + a) @ W @ b - (v - a) @ W @ b) / 2 == pytest.approx(a @ W @ b)
    inside = us.models.LowRankHead.random(9, 2, norm=2.0, seed=1)
    inside = us.models.LowRankHead(inside.K, inside.Q, inside.K @ np.array([1.0, -0.5]))
    recovery = us.recover(us.oracle(inside), us.learners.LowRank())
    assert recovery.usage.phases["values"] + recovery.usage.phases["main"] == us.theory.low_rank_queries(9, 2)
    assert us.models.distance(recovery.model, inside) < 1e-11


@pytest.mark.parametrize(("d", "r"), [(7, 2), (12, 5), (6, 6)])
def test_lemma_3_rows(d, r) -> None:
    W, rng = low_rank(d, r, r)
    B = rng.standard_normal((d, r))
    U, T = np.linalg.qr(W @ B)
    M = np.empty((r, d))
    M[:, r:] = U.T @ W[:, r:]  # the r (d - r) readings
    M[:, :r] = (T - M[:, r:] @ B[r:]) @ np.linalg.inv(B[:r])
    assert np.allclose(U @ M, W)


@pytest.mark.parametrize("k", [2, 8, 30])
def test_lemma_4_stability(k) -> None:
    rng = np.random.default_rng(k)
    smallest = np.linalg.svd(rng.standard_normal((3000, k, k)), compute_uv=False)[:, -1] * np.sqrt(k)
    for eps in (0.03, 0.1, 0.3):
        assert np.mean(smallest <= eps) <= 1.3 * eps + 0.005


def test_theorem_counts() -> None:
    head = us.models.LowRankHead.random(40, 3, seed=2)
    recovery = us.recover(us.oracle(head), us.learners.LowRank())
    assert recovery.usage.phases["values"] + recovery.usage.phases["main"] == 40 + 3 * (80 - 3)
    assert recovery.model.rank == 3
