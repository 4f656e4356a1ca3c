"""Tables of low rank from a cross, and how many of their directions noise leaves visible."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.solvers.cross import completed, pivots, visible_rank


@settings(max_examples=30, deadline=None)
@given(d=st.integers(1, 12), seed=st.integers(0, 999), data=st.data())
def test_a_cross_determines_the_table(d: int, seed: int, data) -> None:
    rank = data.draw(st.integers(0, d))
    rng = np.random.default_rng(seed)
    T = rng.standard_normal((d, rank)) @ rng.standard_normal((rank, d))
    assert visible_rank(T, 1e-12) == rank
    rows, columns = pivots(T, rank)
    known = np.full_like(T, np.nan)
    known[rows], known[:, columns] = T[rows], T[:, columns]
    assert np.allclose(
        completed(known[:, columns], known[rows], rows, rank), T, atol=1e-6 * max(1.0, np.abs(T).max(initial=0.0))
    )


def test_directions_below_the_noise_are_not_counted() -> None:
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((8, 3)))[0] for _ in range(2))
    T = left @ np.diag([3.0, 1.0, 1e-7]) @ right.T
    assert visible_rank(T, 1e-12) == 3
    assert visible_rank(T, 1e-4) == 2
    assert visible_rank(np.zeros((0, 0)), 1e-4) == 0
