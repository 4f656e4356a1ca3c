"""Common blocks of noisy symmetric matrices."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.solvers.block_diagonal import finest_blocks


@settings(max_examples=20, deadline=None)
@given(dims=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 10**6))
def test_blocks_of_rank_two_matrices_are_found_up_to_noise(dims: list[int], seed: int) -> None:
    """Every matrix is poor in rank, as Hessians of heads are; together they fill the blocks."""
    rng = np.random.default_rng(seed)
    d, noise = sum(dims), 1e-12
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    spaces = np.split(Q, np.cumsum(dims)[:-1], axis=1)
    fixed = [U @ rng.standard_normal(U.shape[1]) for U in spaces]
    matrices = []
    for _ in range(max(dims) + 3):
        terms = [np.outer(v, U @ rng.standard_normal(U.shape[1])) for U, v in zip(spaces, fixed, strict=True)]
        A = sum(term + term.T for term in terms)
        E = rng.standard_normal((d, d)) * noise
        matrices.append(A + E + E.T)
    found = finest_blocks(np.array(matrices), 10 * noise, rng)
    assert sorted(U.shape[1] for U in found.bases) == sorted(dims)
    for U in found.bases:
        parts = [np.linalg.norm(S.T @ U) for S in spaces]
        assert abs(max(parts) - np.sqrt(U.shape[1])) < 1e-6


def test_nothing_to_see() -> None:
    found = finest_blocks(np.zeros((2, 3, 3)), 1e-12, np.random.default_rng(0))
    assert found.bases == []
    assert found.empty == 3
