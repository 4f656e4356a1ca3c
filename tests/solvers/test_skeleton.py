"""Rows and columns give the whole; first-order changes and their adjoint are what they say."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.solvers.skeleton import Skeleton, pivots


def low_rank(d, r, seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, r)) @ rng.standard_normal((r, d)), rng


def cross(M, r):
    i, j = pivots(M, r, 0.0)
    return Skeleton(i, j, M[:, j], M[i])


@settings(deadline=None)
@given(d=st.integers(1, 9), r=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_a_cross_determines_a_matrix_of_its_rank(d: int, r: int, seed: int) -> None:
    r = min(r, d)
    M, _ = low_rank(d, r, seed)
    assert np.allclose(cross(M, r).matrix, M, atol=1e-8 * np.abs(M).max())


def test_pivots_stop_at_the_rank() -> None:
    M, _ = low_rank(9, 3, 1)
    assert len(pivots(M, 9, 1e-10)[0]) == 3


def test_a_cross_of_too_many_rows_is_reduced() -> None:
    M, rng = low_rank(9, 2, 2)
    i, j = rng.permutation(9)[:4], rng.permutation(9)[:4]
    reduced = Skeleton(i, j, M[:, j], M[i]).reduced(1e-10)
    assert reduced.rank == 2
    assert np.allclose(reduced.matrix, M)


def test_first_order_change() -> None:
    M, rng = low_rank(8, 3, 3)
    skeleton = cross(M, 3)
    D = rng.standard_normal((8, 8))
    h = 1e-6
    changed = M + h * D
    there = Skeleton(skeleton.rows, skeleton.columns, changed[:, skeleton.columns], changed[skeleton.rows]).matrix
    assert np.allclose((there - M) / h, skeleton.moved(D), atol=1e-3)


def test_amplification_is_the_move_of_one_entry() -> None:
    M, _ = low_rank(7, 2, 4)
    skeleton = cross(M, 2)
    rows, columns = (index.ravel() for index in np.indices((7, 7)))
    weights = skeleton.amplification(rows, columns)
    for k in range(49):
        D = np.zeros((7, 7))
        D[rows[k], columns[k]] = 1.0
        assert np.isclose(np.linalg.norm(skeleton.moved(D)), weights[k])
