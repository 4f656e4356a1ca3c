"""Ranges, supports, orthogonal systems and the split of summed value maps."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.probes.around import balanced_blocks, orthonormal
from unsoftmax.probes.scales import on_grid
from unsoftmax.solvers import mixing_newton
from unsoftmax.solvers.mixing_newton import refine, where_ranges_meet
from unsoftmax.solvers.mixture import lacking, split_values
from unsoftmax.solvers.pencil import annihilators, find_clusters
from unsoftmax.solvers.projective import scales_of_points
from unsoftmax.solvers.subspace import column_range, solve_orthogonal, support


@pytest.mark.parametrize("noise", [1e-16, 1e-7])
@pytest.mark.parametrize("rank", [1, 4, 9])
def test_rank_by_the_gap(noise, rank):
    rng = np.random.default_rng(rank)
    M = rng.standard_normal((20, rank)) @ rng.standard_normal((rank, rank + 2))
    seen = column_range(M * (1 + noise * rng.standard_normal(M.shape)), noise)
    assert (seen.rank, seen.clear) == (rank, True)
    assert np.linalg.norm(M - seen.basis @ (seen.basis.T @ M)) < 100 * noise * np.linalg.norm(M)


def test_a_weak_direction_is_told_from_noise_that_lies_40_times_below_it():
    rng = np.random.default_rng(0)
    strengths = np.geomspace(1.0, 1e-5, 32)
    M = (np.linalg.qr(rng.standard_normal((256, 32)))[0] * strengths) @ np.linalg.qr(rng.standard_normal((255, 32)))[
        0
    ].T
    noise = 1.2e-7
    seen = column_range(M + 2.5e-7 / 32 * rng.standard_normal(M.shape), noise, spare=0)
    assert (seen.rank, seen.clear) == (32, True)


def test_no_spare_column_is_not_clear():
    M = np.random.default_rng(0).standard_normal((20, 6))
    assert not column_range(M, 1e-16).clear


def test_support_of_moved_tokens():
    rng = np.random.default_rng(1)
    K = rng.integers(-32, 33, (200, 9)).astype(float)
    responses = rng.standard_normal((12, 4)) @ K[[3, 50, 77, 180]]
    index, worst, next_best = support(responses, K, 1e-8)
    assert list(index) == [3, 50, 77, 180]
    assert worst < 1e-12 < next_best
    assert support(rng.standard_normal((12, 9)), K, 1e-8) is None


@pytest.mark.parametrize("largest", [3.0, 3e3, 3e4, 1e5])
def test_orthogonal_systems_to_machine_precision(largest):
    """On coarse grids too, where rows are orthonormal to a few digits or hardly at all."""
    rng = np.random.default_rng(2)
    A = on_grid(orthonormal(rng, 200) * 3, largest, "float64")
    x = rng.standard_normal((200, 3))
    assert np.abs(solve_orthogonal(A, A @ x) - x).max() < (1e-14 if largest < 1e4 else 1e-12)


@pytest.mark.parametrize("overlap", [1.0, 1e-6])
def test_split_where_ranges_nearly_depend(overlap):
    rng = np.random.default_rng(3)
    O = [np.linalg.qr(rng.standard_normal((12, 4)))[0] for _ in range(3)]
    # One direction of the third head is a combination of the others, up to `overlap`.
    O[2][:, 0] = O[0][:, 0] + O[1][:, 1] + overlap * O[2][:, 0]
    O[2] = np.linalg.qr(O[2])[0]
    Z = [rng.standard_normal((4, 12)) for _ in O]
    moves = [rng.standard_normal((6, 12)) for _ in O]
    responses = [o @ z @ a.T for o, z, a in zip(O, Z, moves, strict=True)]
    found = split_values(O, sum(o @ z for o, z in zip(O, Z, strict=True)), moves, responses)
    assert max(np.abs(a - b).max() for a, b in zip(found.Z, Z, strict=True)) < 1e-11
    assert found.missing < 1e-12


def test_too_many_ranges_for_the_answers():
    O = [np.eye(4)[:, :3], np.eye(4)[:, 1:]]
    with pytest.raises(us.errors.NotIdentifiable, match="6 dimensions"):
        split_values(O, np.eye(4), [np.eye(4)] * 2, [np.eye(4)] * 2)


def test_balanced_blocks_suit_every_head():
    rng = np.random.default_rng(4)
    values = [orthonormal(rng, 24, 6) for _ in range(4)]
    keys = [orthonormal(rng, 24, 6) for _ in range(4)]
    E = balanced_blocks(values, keys, 2, 4, rng)
    assert E.shape == (8, 24)
    for part in np.split(E, 2):
        assert max(np.linalg.cond(M @ part.T) for M in values) < 4
    assert max(np.linalg.cond(M @ E.T) for M in keys) < 10


def mixed(seed, H=3, s=5, D=15):
    """Ranges, key directions and value maps of H heads of rank s at one query token."""
    rng = np.random.default_rng(seed)
    O = np.hstack([np.linalg.qr(rng.standard_normal((H * s, s)))[0] for _ in range(H)])
    return rng, O, rng.standard_normal((H, D)) / np.sqrt(D), rng.standard_normal((H * s, D))


def test_clusters_of_the_pencil_are_heads():
    rng, O, u, P = mixed(1)
    x = rng.standard_normal(15)
    sigma = 1 / (1 + np.exp(-(u @ x)))
    Z = np.linalg.solve(O, P)
    parts = [O[:, 5 * h : 5 * h + 5] @ Z[5 * h : 5 * h + 5] for h in range(3)]
    J = sum(s * (p + (1 - s) * np.outer(p @ x, w)) for s, p, w in zip(sigma, parts, u, strict=True))
    found = find_clusters(J, P)
    assert found.rank == 5
    assert np.allclose(np.sort(found.centres), np.sort(sigma), atol=1e-8)
    for L in annihilators(J, P, found, 4):
        silent = [np.linalg.norm(L.T @ p) < 1e-5 * np.linalg.norm(p) for p in parts]
        assert sum(silent) == 2
    assert find_clusters(rng.standard_normal((15, 15)), P) is None


@pytest.mark.parametrize("left_out", [0, 4])
def test_clusters_that_nearly_coincide_are_told_apart_by_their_own_widths(left_out):
    rng, O, _, P = mixed(2, H=3, s=12, D=36)
    sigma = np.array([0.3, 0.300001, 0.9])
    parts = [O[:, 12 * h : 12 * h + 12] @ np.linalg.solve(O, P)[12 * h : 12 * h + 12] for h in range(3)]
    J = sum(
        s * p + np.outer(p @ rng.standard_normal(36), rng.standard_normal(36))
        for s, p in zip(sigma, parts, strict=True)
    )
    V = np.linalg.svd(P)[2][: 36 - left_out]
    found = find_clusters(J @ V.T, P @ V.T)
    assert found.rank == 12
    assert found.contrast > 8
    assert np.allclose(np.sort(found.centres), sigma, atol=1e-8)


def answered(rng, O, u, Z, sizes):
    """Blocks of displacements and answers: n sequences of m tokens for every (m, n)."""
    H, s, D = Z.shape
    data = []
    for m, n in sizes:
        e = rng.standard_normal((n, m, D))
        t = np.einsum("hd,bmd->bhm", u, e)
        alpha = np.exp(t) / (1 + np.exp(t).sum(axis=2, keepdims=True))
        written = np.einsum("hsd,bhd->bhs", Z, alpha @ e)
        data.append((e, np.einsum("nhs,bhs->bn", O.reshape(len(O), H, s), written)))
    return data


def test_newton_finds_ranges_and_key_directions_together():
    rng, O, u, P = mixed(2)
    data = answered(rng, O, u, np.linalg.solve(O, P).reshape(3, 5, 15), ((1, 40), (3, 12)))
    start = O + 1e-3 * rng.standard_normal(O.shape)
    found = refine(start, u + 1e-3 * rng.standard_normal(u.shape), P, data)
    assert found.residual < 1e-14
    assert np.abs(found.u - u).max() < 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_noise_stays_small_where_ranges_of_two_heads_nearly_meet(seed):
    """Noise of 1e-8 had been 1e-4 in key directions and 1e-3 in what heads write: as much as O^-1 makes of it."""
    rng, O, u, P = mixed(seed)
    O[:, 5] = O[:, 0] + 1e-5 * O[:, 5]
    O = np.hstack([np.linalg.qr(part)[0] for part in np.split(O, 3, axis=1)])
    Z = rng.standard_normal((3, 5, 15))
    noisy = [(e, y + 1e-8 * rng.standard_normal(y.shape)) for e, y in answered(rng, O, u, Z, ((1, 120), (3, 12)))]
    P = O @ Z.reshape(15, 15) + 1e-8 * rng.standard_normal(P.shape)
    rough = refine(O + 1e-7 * rng.standard_normal(O.shape), u + 1e-4 * rng.standard_normal(u.shape), P, noisy)
    found = where_ranges_meet(rough, noisy, 1e-8)
    assert np.abs(found.u - u).max() < 1e-6
    truth = [o @ z for o, z in zip(np.split(O, 3, axis=1), Z, strict=True)]
    off, before = (
        max(np.abs(o @ z - p).max() for o, z, p in zip(np.split(m.O, 3, axis=1), m.Z, truth, strict=True))
        for m in (found, rough)
    )
    assert off < 1e-6 < 0.1 * before


def test_heads_that_are_not_there_leave_newton_without_a_step_on_all_answers(monkeypatch):
    """Each had cost seconds at d = 256, where one head was tried for four."""
    rng, O, u, P = mixed(2)
    data = answered(rng, O, u, np.linalg.solve(O, P).reshape(3, 5, 15), ((1, 400),))
    parts, step = [], mixing_newton._step
    monkeypatch.setattr(mixing_newton, "_step", lambda *args: parts.append(args[4]) or step(*args))
    found = refine(np.eye(15), rng.standard_normal((1, 15)), P, data)
    assert found.residual > 0.1
    assert None not in parts


def test_scales_of_points_seen_as_directions():
    rng = np.random.default_rng(3)
    s = rng.standard_normal((6, 9)) + 2
    weights = rng.standard_normal((3, 6))
    hidden = rng.uniform(0.5, 2, 9)
    r = scales_of_points(s * hidden[:6, None], (weights @ s) * hidden[6:, None], weights)
    assert np.allclose(r * hidden[:6] / (r[0] * hidden[0]), 1, atol=1e-10)
    with pytest.raises(us.errors.ModelMismatch):
        scales_of_points(s, rng.standard_normal((3, 9)), np.zeros((3, 6)))


@pytest.mark.parametrize("rows", [10, 60])
@pytest.mark.parametrize("deficient", [False, True])
def test_least_squares_of_every_shape_is_the_shortest_solution(rows, deficient):
    from unsoftmax.solvers.gauss_newton import least_squares

    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((rows, 6)), rng.standard_normal(rows)
    if deficient:
        A[:, 5] = A[:, 4]
    assert np.allclose(least_squares(A, b), np.linalg.lstsq(A, b, rcond=None)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("moved", [3, 6, 12])
def test_ranges_that_nearly_depend_say_how_many_moves_they_lack(moved):
    """Two heads in a space they do not fill: a trained layer had ended in a triangular solve that was not square."""
    rng = np.random.default_rng(5)
    O = [np.linalg.qr(rng.standard_normal((24, 5)))[0] for _ in range(2)]
    O[1][:, 0] = O[0][:, 0] + 1e-6 * O[1][:, 0]
    O[1] = np.linalg.qr(O[1])[0]
    Z = [rng.standard_normal((5, 24)) for _ in O]
    moves = [rng.standard_normal((moved, 24)) for _ in O]
    head, missing = lacking(O, moves)
    assert (missing == 0) == (2 * moved >= 24)
    moves[head] = np.vstack([moves[head], rng.standard_normal((missing, 24))])
    responses = [o @ z @ a.T for o, z, a in zip(O, Z, moves, strict=True)]
    found = split_values(O, sum(o @ z for o, z in zip(O, Z, strict=True)), moves, responses)
    assert max(np.abs(a - b).max() for a, b in zip(found.Z, Z, strict=True)) < 1e-9
