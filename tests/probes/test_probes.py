"""Designs: slices equal the whole, grids are exact, bases have the inner products they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from unsoftmax.probes import Pairs, Probes, paired
from unsoftmax.probes.bases import coordinate_basis, householder_basis
from unsoftmax.probes.scales import lengths_for, on_grid
from unsoftmax.spec import Domain


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_any_slice_of_a_lazy_design_is_that_slice_of_the_whole(m, n, data) -> None:
    rng = np.random.default_rng(0)
    design = Pairs(rng.standard_normal((m, 3)), rng.standard_normal((n, 3)))
    whole = paired(np.tile(design.A, (n, 1)), np.repeat(design.B, m, axis=0))
    start = data.draw(st.integers(0, m * n))
    stop = data.draw(st.integers(start, m * n))
    part = design.probes("main")[start:stop]
    assert np.array_equal(part.tokens, whole.tokens[start:stop])
    assert part.offset == start


def test_measurements_come_back_as_the_matrix_they_are() -> None:
    rng = np.random.default_rng(0)
    design = Pairs(rng.standard_normal((4, 3)), rng.standard_normal((5, 3)))
    W = rng.standard_normal((3, 3))
    x = design.probes("main")[0:20].tokens
    t = np.einsum("bd,de,be->b", x[:, 0] - x[:, 1], W, x[:, 1])
    assert np.allclose(design.matrix(t), design.A @ W @ design.B.T)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.floats(-20, 20), st.sampled_from(["float64", "float32", "float16"]), st.integers(0, 99))
def test_sums_on_the_grid_are_exact_in_the_declared_format(d, log_size, dtype, seed) -> None:
    scale = 2.0**log_size if dtype != "float16" else 2.0 ** (log_size / 4)
    rng = np.random.default_rng(seed)
    a = on_grid(rng.uniform(-1, 1, d) * scale, 2 * scale, dtype)
    b = on_grid(rng.uniform(-1, 1, d) * scale / 64, 2 * scale, dtype)
    for x in (a, b, a + b):
        assert np.array_equal(x.astype(dtype).astype(float), x)
    assert np.array_equal((a + b) - b, a)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 20), st.integers(0, 999), st.floats(0, 0.95))
def test_householder_rows_are_orthonormal_with_equal_inner_products(d, seed, sparsity) -> None:
    v = us.models.SingleHead.random(d, sparsity=sparsity, seed=seed).v * 7
    Z = householder_basis(v)
    assert np.allclose(Z @ Z.T, np.eye(d), atol=1e-13)
    assert np.allclose(np.abs(Z @ v), np.linalg.norm(v) / np.sqrt(d), rtol=1e-12)


def test_coordinate_rows_avoid_zeros_of_v() -> None:
    v = np.array([0.0, 2.0, 0.0, -1.0])
    Z = coordinate_basis(v)
    assert (Z @ v != 0).all()
    assert np.linalg.matrix_rank(Z) == 4


@settings(max_examples=50, deadline=None)
@given(st.floats(-20, 20), st.floats(-5, 5))
def test_lengths_stay_inside_the_norm_limit(log_product, log_limit) -> None:
    limit = 10**log_limit
    a, b = lengths_for(10**log_product, Domain(max_norm=limit))
    assert a + b <= limit
    assert a * b <= 10**log_product * (1 + 1e-12)


@pytest.mark.parametrize("shape", [(3,), (2, 0, 4), (1, 2, 3, 4)])
def test_shapes_that_are_not_sequences_are_refused(shape) -> None:
    with pytest.raises(us.errors.InvalidArgument, match="tokens"):
        Probes(np.zeros(shape))


def test_counts_must_match() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="counts"):
        Probes(np.zeros((2, 3, 4)), np.ones((2, 2)))
