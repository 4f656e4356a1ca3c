"""The cross of gaps: exact where rank allows, and its bound covers what errors in the readings do."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from unsoftmax.solvers.embedding import fit_scores, spanning_tokens
from unsoftmax.solvers.gap_cross import Cross
from unsoftmax.solvers.position_offset import offset


def cross_of(G, rank, error=0.0, seed=0) -> Cross:
    rng = np.random.default_rng(seed)
    tokens = rng.permutation(len(G))
    keys, queries = tokens[: rank + 1].tolist(), tokens[rank + 1 : 2 * rank + 1].tolist()
    noisy = G + error * rng.uniform(-1, 1, G.shape)
    radius = np.full(G.shape, error)
    return Cross(keys, noisy[keys], radius[keys], queries, noisy[:, queries], radius[:, queries])


def test_gaps_follow_from_rank_plus_one_rows_and_rank_columns() -> None:
    G = us.models.TokenHead.random(40, 3, 1.0, seed=1).gaps()
    fit = cross_of(G, 3).fit()
    i, j = np.indices(G.shape).reshape(2, -1)
    assert np.abs(fit.at(i, j) - G.ravel()).max() < 1e-10
    assert np.abs(fit.diagonal()).max() < 1e-10
    assert np.abs(cross_of(G, 2).fit().diagonal()).max() > 1e-2


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), error=st.sampled_from([1e-9, 1e-7]))
def test_the_bound_covers_the_error(seed, error) -> None:
    G = us.models.TokenHead.random(30, 2, 1.0, seed=seed).gaps()
    cross = cross_of(G, 2, error, seed)
    cross.sync()
    fit = cross.fit()
    i, j = np.indices(G.shape).reshape(2, -1)
    bound = fit.bounds(i, j)
    small = bound < 1e-3  # to first order only
    assert (np.abs(fit.at(i, j) - G.ravel()) <= 1.1 * bound + 1e-12)[small].all()


def test_scores_of_embeddings_are_solved_exactly_and_strangers_are_not() -> None:
    rng = np.random.default_rng(0)
    E, W = rng.standard_normal((20, 5)), rng.standard_normal((5, 5))
    S = E @ W @ E.T
    G, errors = S - np.diag(S), np.full((20, 20), 1e-13)
    found = fit_scores(E, G, errors)
    assert found.c is None
    assert np.abs(found.W - W).max() < 1e-11
    assert fit_scores(rng.standard_normal((20, 5)), G, errors).excess > 1e3


def test_spanning_tokens_span() -> None:
    E = np.random.default_rng(0).standard_normal((300, 6)) @ np.diag([1, 1, 1, 1, 0, 0.0])
    chosen = spanning_tokens(E, 2)
    assert len(chosen) == 4 + 1 + 2
    assert np.linalg.matrix_rank(E[chosen]) == 4


def test_offset_of_the_last_position() -> None:
    rng = np.random.default_rng(0)
    keys, queries, t = rng.standard_normal(20), rng.standard_normal(20), rng.standard_normal((20, 3))
    gaps = t @ rng.standard_normal((3, 20))
    alpha = 1 / (1 + np.exp(-gaps))
    found = offset(alpha * keys[:, None] + (1 - alpha) * (queries + 0.37), keys, queries, 1e-16)
    assert found is not None
    assert abs(found.c - 0.37) <= found.error < 1e-12
    for _ in range(20):
        alpha = 1 / (1 + np.exp(-rng.standard_normal((20, 20))))
        assert offset(alpha * keys[:, None] + (1 - alpha) * (queries + 0.37), keys, queries, 1e-16) is None
