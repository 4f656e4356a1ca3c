"""Threshold families: the label of a sequence is the comparison it was made for."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from unsoftmax.probes.thresholds import (
    LARGEST_SHARE_LOGIT,
    EntryThresholds,
    coordinate_ratio,
    largest_product,
    random_bases,
)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 9), log_norm=st.floats(-3, 3))
def test_entries_above_their_levels_answer_one(seed: int, d: int, log_norm: float) -> None:
    rng = np.random.default_rng(seed)
    head = us.models.SingleHead.random(d, norm=10.0**log_norm, sparsity=0.4 if d > 1 else 0.0, seed=seed)
    A, B = random_bases(head.v, rng)
    assert np.allclose(A @ A.T, np.eye(d))
    # In the plane the bases are tilted a little: level ones would hide a skew W.
    level = 0.03 if d == 2 else 1e-8
    assert np.allclose(A @ head.v, d**-0.5, rtol=level, atol=0)
    assert np.allclose(B @ head.v, -(d**-0.5), rtol=level, atol=0)
    rows, columns = (i.ravel() for i in np.indices((d, d)))
    M = (A @ head.W @ B.T).ravel()
    product = np.full(d * d, 1 / np.abs(M).max())
    for shift in (1e-6, -1e-6):
        levels = M + shift / product
        probes = EntryThresholds(A, B, head.v).above(rows, columns, levels, product, "main")
        assert np.array_equal(head(probes[:].tokens) > 0, levels < M)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), limit=st.floats(1e-3, 1e3))
def test_no_token_leaves_the_norm_limit(seed: int, limit: float) -> None:
    rng = np.random.default_rng(seed)
    v = rng.standard_normal(5)
    product = np.full(25, largest_product(limit))
    levels = rng.uniform(-1, 1, 25) * LARGEST_SHARE_LOGIT / product
    rows, columns = (i.ravel() for i in np.indices((5, 5)))
    tokens = EntryThresholds(*random_bases(v, rng), v).above(rows, columns, levels, product, "main")[:].tokens
    assert np.linalg.norm(tokens, axis=2).max() <= limit


def test_ratios_of_coordinates() -> None:
    v = np.array([0.5, -2.0, 0.0, 1.0])
    signs = np.sign(v)
    index = np.array([0, 0, 3, 3])
    levels = np.array([0.24, 0.26, 0.5, 0.4999])
    x = coordinate_ratio(signs, 1, index, levels, np.full(4, 0.25)).tokens[:, 0]
    assert (x @ v > 0).tolist() == [True, False, False, True]
