"""Ranks from singular values, ellipsoids through points, caps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.solvers.ellipsoid import fit_ellipsoid, unknowns
from unsoftmax.solvers.row_space import rank_of
from unsoftmax.solvers.softcap import find_cap, uncapped

SPARE = 16


def spectrum(n: int, m: int, k: int, noise: float, seed: int, decay: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    signal = (rng.standard_normal((n, k)) * decay ** -np.arange(k)) @ rng.standard_normal((k, m))
    return np.linalg.svd(signal + noise * rng.standard_normal((n, m)), compute_uv=False)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 10**6), st.sampled_from([1e-3, 1e-6, 1e-12, 0.0]))
def test_rank_is_right_whatever_the_noise(k: int, seed: int, noise: float) -> None:
    found = rank_of(spectrum(k + SPARE, 3 * (k + SPARE), k, noise, seed), 3 * (k + SPARE), SPARE)
    assert found is not None
    assert found.rank == k


@settings(max_examples=60, deadline=None)
@given(st.integers(20, 60), st.integers(0, 10**6), st.floats(1.0, 1.5))
def test_full_rank_and_slow_decay_have_no_end(n: int, seed: int, decay: float) -> None:
    assert rank_of(spectrum(n, 3 * n, n, 0.0, seed, decay), 3 * n, SPARE) is None


def test_nothing_has_no_rank() -> None:
    assert rank_of(np.zeros(40), 100, SPARE) is None


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), st.integers(0, 10**6), st.booleans())
def test_points_on_an_ellipsoid_give_it_back(r: int, seed: int, flat: bool) -> None:
    rng = np.random.default_rng(seed)
    d = r + flat
    A, centre = rng.standard_normal((d, r)), rng.standard_normal(d)
    n = rng.standard_normal((2 * unknowns(r) + 8, r))
    # Of a line ten points may all be the same end.
    n = np.vstack([n, -n[:1]])
    z = (n / np.linalg.norm(n, axis=1, keepdims=True)) @ A.T + centre
    found = fit_ellipsoid(z)
    assert found.dimension == r
    size = np.linalg.cond(A) ** 2
    # On the points' plane the metric is that of A: A'MA = 1.
    assert np.abs(A.T @ found.metric @ A - np.eye(r)).max() <= 1e-10 * size
    assert np.abs(found.centre - centre).max() <= 1e-10 * size


@pytest.mark.parametrize("c", [2.0, 30.0])
def test_the_cap_is_the_one_that_leaves_low_rank(c: float) -> None:
    rng = np.random.default_rng(0)
    l = rng.standard_normal((40, 10)) @ rng.standard_normal((10, 120)) / 3
    y = c * np.tanh(l / c)
    found = find_cap(y, SPARE, float(np.abs(y).max()))
    assert found == pytest.approx(c, rel=1e-5)
    assert np.allclose(uncapped(y, c), l, atol=1e-6 * np.exp(2 * np.abs(l).max() / c))
