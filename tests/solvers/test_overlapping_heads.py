"""Heads of low rank in the span of mixtures, and the fit that eliminates what they write."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from unsoftmax.solvers.eliminated_values import Above, eliminate
from unsoftmax.solvers.low_rank_members import members, outside
from unsoftmax.solvers.sigmoid_mixtures import unmixed


def heads(rng, H, n, m, rank, fading=1.0):
    """(H, n, m) of this rank, singular values fading down to `fading`."""
    sizes = np.geomspace(1, fading, rank)
    return np.stack([rng.standard_normal((n, rank)) * sizes @ rng.standard_normal((rank, m)) for _ in range(H)])


def matched(found, true):
    """Largest relative error, every true head matched with the nearest found one, each once."""
    gaps = [[np.linalg.norm(P - Q) / np.linalg.norm(Q) for P in found] for Q in true]
    assert sorted(np.argmin(gaps, axis=1)) == list(range(len(true)))
    return np.min(gaps, axis=1).max()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("H", "n", "m", "rank", "fading"),
    [(4, 24, 24, 8, 1.0), (8, 24, 24, 12, 1.0), (6, 20, 24, 6, 1e-2), (16, 32, 32, 8, 1.0), (2, 12, 12, 8, 1.0)],
)
def test_members_are_found_as_well_as_mixtures_are_known(H, n, m, rank, fading, seed):
    rng = np.random.default_rng([seed, H])
    P, shares = heads(rng, H, n, m, rank, fading), rng.uniform(0.1, 0.9, (H + 1, H))
    mixtures = np.tensordot(shares, P, 1)
    noise = 1e-7 * np.sqrt(np.mean(mixtures**2)) * rng.standard_normal(mixtures.shape)
    found = members(mixtures + noise, P.sum(axis=0), H)
    assert found is not None
    # Directions that hardly count are cut off where the rest in the null spaces is little, and that is what is left.
    assert matched(found.P, P) < max(1e-5, found.left)
    order = [int(np.argmin([np.linalg.norm(Q - own) for own in P])) for Q in found.P]
    assert np.abs(found.shares - shares[:, order]).max() < 1e-3


def test_full_rank_members_are_not_made_up():
    """Nothing tells one mixture of matrices of full rank from another."""
    rng = np.random.default_rng(0)
    P = rng.standard_normal((3, 8, 8))
    assert members(np.tensordot(rng.uniform(0.1, 0.9, (4, 3)), P, 1), P.sum(axis=0), 3) is None


@pytest.mark.parametrize(("H", "G"), [(4, 2), (6, 2), (5, 3)])
def test_members_that_share_their_rows_are_a_family(H, G):
    rng = np.random.default_rng(H)
    group = np.arange(H) % G
    P = rng.standard_normal((H, 16, 6)) @ rng.standard_normal((G, 6, 16))[group]
    found = members(np.tensordot(rng.uniform(0.1, 0.9, (H + 1, H)), P, 1), P.sum(axis=0), H)
    assert found is not None
    assert sorted(np.bincount(found.family)) == sorted(np.bincount(group))
    assert found.alone == (H == G)
    assert np.linalg.norm(found.P.sum(axis=0) - P.sum(axis=0)) < 1e-8 * np.linalg.norm(P)
    for Q in found.P:
        assert min(np.linalg.norm(Q - Q @ np.linalg.pinv(p) @ p) for p in P) < 1e-7 * np.linalg.norm(Q)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_a_family_falls_apart_by_its_logits(k, seed):
    rng = np.random.default_rng([k, seed])
    d, n = 16, 160
    u, index = rng.standard_normal((2, k, d + 1)) / np.sqrt(d), np.arange(n) % 2
    wide = np.column_stack([rng.standard_normal((n, d)), np.ones(n)])
    weights = expit(np.einsum("nhj,nj->nh", u[index], wide))
    T = rng.standard_normal((k, k))
    T /= T.sum(axis=0)
    C = unmixed(weights @ T, wide, index, 1e-6)
    assert C is not None
    found = weights @ T @ C
    assert max(min(np.abs(own - other).max() for other in found.T) for own in weights.T) < 1e-6


def test_a_family_of_other_scores_does_not_fall_apart():
    rng = np.random.default_rng(3)
    u, wide = rng.standard_normal((2, 17)) / 4, np.column_stack([rng.standard_normal((80, 16)), np.ones(80)])
    weights = expit(np.tanh(2 * wide @ u.T))
    assert unmixed(weights @ np.array([[0.3, 1.4], [0.7, -0.4]]), wide, np.zeros(80, dtype=int), 1e-3) is None


def test_what_lies_outside_the_span():
    rng = np.random.default_rng(2)
    P = heads(rng, 3, 10, 10, 4)
    mixtures = np.tensordot(rng.uniform(0.1, 0.9, (4, 3)), P, 1)
    assert outside(mixtures, P.sum(axis=0), 3) < 1e-12
    assert outside(mixtures, P.sum(axis=0) + np.eye(10), 3) > 0.05


def before(rng, P, queries, n, strength):
    """Answers above `queries` query tokens to n displaced tokens, scores of this size."""
    H, _, d = P.shape
    u = strength * rng.standard_normal((queries, H, d + 1)) / np.sqrt(d)
    E, index = rng.standard_normal((n, d)), np.arange(n) % queries
    weights = expit(np.einsum("nhj,nj->nh", u[index], np.column_stack([E, np.ones(n)])))
    return Above(E, np.einsum("nh,hij,nj->ni", weights, P, E), index, P.sum(axis=0), 1.0), u


@pytest.mark.parametrize("strength", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(("H", "d", "rank", "queries"), [(4, 16, 8, 2), (3, 10, 9, 1), (8, 20, 5, 2)])
def test_values_and_scores_are_found_to_rounding(H, d, rank, queries, strength):
    rng = np.random.default_rng([H, d])
    P = heads(rng, H, d, d, rank)
    data, u = before(rng, P, queries, (H - 1) * d + 2 * queries * H + 8, strength)
    start = P * (1 + 1e-4 * rng.standard_normal(P.shape))
    found = eliminate(start, data)
    assert found is not None
    assert found.residual < 1e-12
    error = matched(found.P, P)
    assert error < 1e-9
    assert error < 1e3 * np.finfo(float).eps * found.rise
    assert np.abs(found.u - u).max() < 1e-7


def test_scores_that_are_not_linear_leave_a_residual():
    rng = np.random.default_rng(5)
    P = heads(rng, 4, 16, 16, 8)
    data, u = before(rng, P, 2, 3 * 16 + 24, 1.0)
    t = np.einsum("nhj,nj->nh", u[data.index], data.wide)
    bent = Above(data.E, np.einsum("nh,hij,nj->ni", expit(np.tanh(t)), P, data.E), data.index, data.M, 1.0)
    found = eliminate(P, bent)
    assert found is None or found.residual > 1e-6
