"""Families stored by their generator behave like the matrices they stand for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unsoftmax.probes.pairs import Pairs
from unsoftmax.probes.rows import Units, spread


@given(d=st.integers(1, 20), seed=st.integers(0, 1000), start=st.integers(0, 19), stop=st.integers(0, 20))
def test_spread_is_a_matrix(d: int, seed: int, start: int, stop: int) -> None:
    rng = np.random.default_rng(seed)
    v, x = rng.standard_normal((2, d))
    rows = spread(v, 4.0)
    dense = np.diag(rows.diagonal) + rows.shift
    assert np.array_equal(rows[start:stop], dense[start:stop])
    index = rng.integers(d, size=5)
    assert np.array_equal(rows[index], dense[index])
    assert np.allclose(rows @ x, dense @ x, rtol=1e-12, atol=1e-12)
    assert np.allclose(rows.solve(dense @ x), x, rtol=1e-10, atol=1e-10)


@given(d=st.integers(1, 30), zeros=st.integers(0, 29), seed=st.integers(0, 1000))
def test_spread_needs_no_margin_in_v(d: int, zeros: int, seed: int) -> None:
    v = np.random.default_rng(seed).standard_normal(d) * np.geomspace(1, 1e-12, d)
    v[1 : 1 + zeros] = 0
    rows = spread(v, 2.0)
    assert np.all(rows @ v >= np.linalg.norm(v) * (1 - 1e-12))
    assert np.all(np.linalg.norm(rows[:], axis=1) <= 2 * (1 + 1e-12))


def test_pairs_of_families_are_pairs_of_their_rows() -> None:
    rng = np.random.default_rng(0)
    A, B = spread(rng.standard_normal(5), 4.0), Units(np.array([4, 1]), 0.5, 5)
    lazy, dense = Pairs(A, B), Pairs(A[:], B[:])
    assert np.array_equal(lazy.probes("main")[2:9].tokens, dense.probes("main")[2:9].tokens)
    chosen = (np.array([0, 3]), np.array([1, 0]), np.array([1.0, 0.25]), "repair")
    assert np.array_equal(lazy.at(*chosen)[:].tokens, dense.at(*chosen)[:].tokens)
    assert np.array_equal(B @ np.arange(5.0), [2.0, 0.5])
