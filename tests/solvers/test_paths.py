"""Paths: picked tokens from random moves, heads and layers from products."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from unsoftmax.solvers.plain_stack import all_paths, heads_of, picked, same_set


def matrices(sizes, d=12, seed=0):
    draw = np.random.default_rng(seed).standard_normal
    return [draw((n, d, d)) / np.sqrt(d) for n in sizes]


@pytest.mark.parametrize("sizes", [(1,), (3,), (1, 1), (2, 2), (1, 2), (3, 1), (1, 1, 1), (2, 1, 1)], ids=str)
def test_heads_and_layers_from_products(sizes) -> None:
    P = matrices(sizes)
    _, M = all_paths(P)
    order = np.random.default_rng(1).permutation(len(M))
    layers = heads_of(M[order])
    assert layers is not None
    assert tuple(map(len, layers)) == sizes
    for found, true in zip(layers, P, strict=True):
        gaps = np.linalg.norm(M[order][found][:, None] - true, axis=(2, 3))
        assert gaps.min(axis=1).max() == 0


@pytest.mark.parametrize("sizes", [(2, 2), (1, 1, 1)], ids=str)
def test_paths_that_met_or_are_missing_are_no_deeper_stack(sizes) -> None:
    _, M = all_paths(matrices(sizes))
    for i, j in pairwise(range(len(M))):
        met = np.concatenate([np.delete(M, [i, j], axis=0), (M[i] + M[j])[None]])
        layers = heads_of(met)
        # Without the products that show depth they can only pass for one layer.
        assert layers is None or len(layers) == 1
    assert heads_of(np.concatenate([M, np.ones((1, 12, 12))])) is None


def test_keys_name_heads_from_the_highest_down() -> None:
    P = matrices((2, 1))
    keys, M = all_paths(P)
    assert sorted(keys) == [(0,), (1,), (2,), (2, 0), (2, 1)]
    np.testing.assert_array_equal(M[keys.index((2, 1))], P[1][0] @ P[0][1])


def test_picked_tokens() -> None:
    rng = np.random.default_rng(3)
    tokens, signatures = np.array([4, 17, 40]), rng.standard_normal((3, 12))
    C = rng.standard_normal((5, 50))
    Y = C[:, tokens] @ signatures
    found = picked(C, Y)
    assert found is not None
    np.testing.assert_array_equal(found[0], tokens)
    np.testing.assert_allclose(found[1], signatures, atol=1e-12)
    assert picked(C[:4], Y[:4]) is None  # too few to tell
    Y[2] += rng.standard_normal(12)  # another token was picked there
    assert picked(C, Y) is None


def test_same_set_is_a_matter_of_one_to_one() -> None:
    S = np.random.default_rng(0).standard_normal((4, 6))
    assert same_set(S, S[[2, 0, 3, 1]] * (1 + 1e-9))
    assert not same_set(S, S[:3])
    assert not same_set(S, S[[0, 0, 1, 2]])
