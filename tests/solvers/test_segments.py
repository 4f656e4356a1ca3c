"""Segments of a known network: breakpoints, monotony and inversion."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.solvers.segments import Kinked, invert, monotone_rows, monotony, segments


def kinked(seed: int, d: int = 4, m: int = 9) -> Kinked:
    rng = np.random.default_rng(seed)
    return Kinked(
        rng.standard_normal((d, m)), rng.standard_normal(m), rng.standard_normal(m), rng.standard_normal(d), 0.5
    )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_slopes_integrate_to_the_function(seed: int) -> None:
    g, rng = kinked(seed), np.random.default_rng(seed + 1)
    base, a = rng.standard_normal(4), rng.standard_normal((6, 4))
    points, slopes = segments(g, base, a)
    rise = (np.diff(points, axis=1) * slopes).sum(axis=1)
    np.testing.assert_allclose(rise, g.of(base + a) - g.of(base[None]), rtol=1e-9, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), alpha=st.floats(0.01, 0.99))
def test_inversion_undoes_evaluation_on_monotone_rows(seed: int, alpha: float) -> None:
    g, rng = kinked(seed), np.random.default_rng(seed + 1)
    base = 0.2 * rng.standard_normal(4)
    A = monotone_rows(g, base, 1.0, rng)
    if A is None:
        return
    assert (monotony(g, base, A) > 0).all()
    found, _ = invert(g, base, A, g.of(base + alpha * A))
    np.testing.assert_allclose(found, alpha, rtol=1e-9)


def test_a_fold_is_not_monotone() -> None:
    fold = Kinked(np.array([[1.0]]), np.array([2.0]), np.array([-0.5]), np.array([-1.0]), 0.0)
    assert monotony(fold, np.zeros(1), np.ones((1, 1)))[0] <= 0
