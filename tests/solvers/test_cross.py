"""The cross scheme's linear algebra, on exact measurements."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.solvers.cross import Columns, assemble, factors, mixing, negligible, next_column, outside


def measured(W, k: int, seed: int) -> Columns:
    rng = np.random.default_rng(seed)
    columns = Columns.none(rng.permutation(len(W)))
    for i in range(k):
        b = next_column(columns.order, i, 1.0, rng)
        columns = columns.with_column(b, W @ b)
    return columns


def low_rank(d: int, r: int, seed: int):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, r)) @ rng.standard_normal((r, d)) / d


@settings(deadline=None)
@given(d=st.integers(1, 24), r=st.integers(1, 24), extra=st.integers(0, 3), seed=st.integers(0, 10**6))
def test_columns_and_rows_determine_the_matrix(d: int, r: int, extra: int, seed: int) -> None:
    W = low_rank(d, min(r, d), seed)
    k = min(r + extra, d)
    columns = measured(W, k, seed)
    v = np.random.default_rng(seed + 1).standard_normal(d)
    A = mixing(columns, v, np.random.default_rng(seed))
    M = assemble(columns, A, (A @ W)[:, columns.rest])
    # The k x k sketch is random: its inverse has a heavy tail, so the bar leaves room for bad luck.
    assert np.linalg.norm(columns.U @ M - W) <= 1e-8 * np.linalg.norm(W)


@settings(deadline=None)
@given(d=st.integers(2, 40), k=st.integers(1, 40), aligned=st.booleans(), seed=st.integers(0, 10**6))
def test_rows_of_the_mixing_see_v_and_keep_the_span(d: int, k: int, aligned: bool, seed: int) -> None:
    W = low_rank(d, min(k, d), seed)
    columns = measured(W, min(k, d), seed)
    rng = np.random.default_rng(seed)
    v = columns.U @ rng.standard_normal(columns.rank) if aligned else rng.standard_normal(d)
    A = mixing(columns, v, rng)
    assert np.all(A @ v >= 0.999 * np.linalg.norm(v))
    assert np.linalg.svd(A @ columns.U, compute_uv=False)[-1] > 0.3


def test_a_column_inside_the_span_keeps_the_basis_orthonormal() -> None:
    columns = measured(np.zeros((5, 5)), 5, 0)
    assert np.allclose(columns.U.T @ columns.U, np.eye(5), atol=1e-12)


def test_what_rounding_leaves_of_a_column_is_no_direction() -> None:
    """Columns of rank one leave 1e-17 of themselves, inside the span; divided by its size it had spoilt the basis."""
    for seed in range(1400, 1600):
        columns = measured(low_rank(3, 1, seed), 3, seed)
        assert np.allclose(columns.U.T @ columns.U, np.eye(3), atol=1e-12), seed


def test_factors_are_balanced_and_drop_what_is_noise() -> None:
    W = low_rank(12, 3, 0)
    U = np.linalg.qr(W @ np.random.default_rng(0).standard_normal((12, 5)))[0]
    K, Q = factors(U, U.T @ W, 1e-12)
    assert K.shape == Q.shape == (12, 3)
    assert np.allclose(K @ Q.T, W, atol=1e-13)
    assert np.allclose(np.linalg.norm(K, axis=0), np.linalg.norm(Q, axis=0))


def test_the_decision_grows_with_noise_and_columns() -> None:
    assert negligible(1e-9, 4) > negligible(1e-15, 4)
    assert negligible(1e-15, 99) > negligible(1e-15, 3)


def test_outside_is_orthogonal_to_rounding() -> None:
    U = np.linalg.qr(np.random.default_rng(0).standard_normal((50, 20)))[0]
    x = U @ np.ones(20) + 1e-9 * np.random.default_rng(1).standard_normal(50)
    left = outside(U, x)
    assert np.abs(U.T @ left).max() <= 1e-14 * np.linalg.norm(left) + 1e-22
