"""Spare queries go where they lessen the error most."""

from __future__ import annotations

import numpy as np

from unsoftmax.solvers.placement import choose, covariance, gains


def test_gains_are_the_fall_of_the_trace() -> None:
    rng = np.random.default_rng(0)
    A, candidates = rng.standard_normal((9, 4)), rng.standard_normal((6, 4))
    P = covariance(A)
    np.testing.assert_allclose(P, np.linalg.inv(A.T @ A), rtol=1e-9)
    for gain, row in zip(gains(candidates, P), candidates, strict=True):
        after = np.linalg.inv(A.T @ A + np.outer(row, row))
        assert abs(gain - (np.trace(P) - np.trace(after))) < 1e-9 * np.trace(P)


def test_choices_are_greedy_and_the_covariance_is_that_of_all_rows() -> None:
    rng = np.random.default_rng(1)
    A, candidates = rng.standard_normal((8, 3)), rng.standard_normal((10, 3))
    P = covariance(A)
    chosen, reached = choose(candidates, P, 4)
    assert len(set(chosen.tolist())) == 4
    assert chosen[0] == np.argmax(gains(candidates, P))
    whole = np.vstack([A, candidates[chosen]])
    np.testing.assert_allclose(reached, np.linalg.inv(whole.T @ whole), rtol=1e-8)
    assert len(choose(candidates[:2], P, 5)[0]) == 2
