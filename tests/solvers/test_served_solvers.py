"""Soft caps, maps behind a norm, eigenvalues in equal groups: each against what it was made from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.solvers.capped import cap_of, unbent, uncapped
from unsoftmax.solvers.normed_features import Normed, fit_normed
from unsoftmax.solvers.pencil import equal_groups


@given(cap=st.floats(2, 60), seed=st.integers(0, 50))
@settings(max_examples=20, deadline=None)
def test_a_cap_follows_from_halves(cap, seed):
    s = np.random.default_rng(seed).standard_normal(40) * 3
    whole, half = cap * np.tanh(s / cap), cap * np.tanh(s / 2 / cap)
    found = cap_of(whole, half)
    assert found == pytest.approx(cap, rel=1e-7)
    assert np.allclose(unbent(whole, cap), s, atol=1e-9)


def test_queries_behind_a_cap():
    rng = np.random.default_rng(0)
    rows, own, a = rng.standard_normal((8, 8)), rng.standard_normal((1, 8)), rng.standard_normal((8, 2))
    right = 5 * np.tanh(rows @ a / 5) - 5 * np.tanh(own @ a / 5)
    start = np.linalg.lstsq(rows - own, right, rcond=None)[0]
    assert np.allclose(uncapped(rows, np.broadcast_to(own, rows.shape), right, start, 5.0), a, atol=1e-9)


def test_a_map_behind_a_norm():
    rng = np.random.default_rng(1)
    blocks = [np.array([0, 1]), np.array([2, 3])]
    true = Normed(rng.standard_normal((4, 10)), np.diag([0.2, 0.3, 0.4, 0.1]), 1e-3, 0.0)
    tokens = rng.standard_normal((30, 10))
    found = fit_normed(tokens, true.of(tokens), np.ones(len(tokens)), blocks)
    fresh = rng.standard_normal((20, 10))
    assert found.error < 1e-10
    assert np.allclose(found.of(fresh), true.of(fresh), atol=1e-8)


def test_equal_groups():
    values = np.repeat([0.2, 0.5, 0.7], 4) + 1e-9 * np.random.default_rng(0).standard_normal(12)
    found = equal_groups(values)
    assert found.rank == 4
    assert np.allclose(found.centres, [0.2, 0.5, 0.7], atol=1e-8)
    assert equal_groups(np.arange(3.0)) is None


def test_equal_groups_of_which_two_nearly_meet():
    values = np.repeat([0.2, 0.5, 0.5001, 0.9], 4) + 1e-4 * np.random.default_rng(0).standard_normal(16)
    assert equal_groups(values).rank == 4


def test_conjugate_values_are_no_pair():
    values = np.repeat([0.2, 0.5, 0.7, 0.9], 2) + 0.3j * np.tile([1, -1], 4)
    assert equal_groups(values).contrast < 1
