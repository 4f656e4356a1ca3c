"""The parts of the ReLU learner that see no queries: sinusoids, cells, orientation, distinct neurons."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.solvers.cells import (
    CellNetwork,
    away_from_kinks,
    corrected,
    distinct,
    informative,
    moved_away,
    no_cells,
    orientation,
    with_chain,
)
from unsoftmax.solvers.sinusoids import Piece, agree, crossing


def sinusoid(alpha: float, beta: float, angles: list[float]) -> Piece:
    return Piece([(t, alpha * np.cos(t) + beta * np.sin(t)) for t in angles])


@settings(max_examples=30, deadline=None)
@given(alpha=st.floats(-3, 3), beta=st.floats(-3, 3), t=st.floats(0, 3))
def test_a_piece_is_its_sinusoid_everywhere(alpha: float, beta: float, t: float) -> None:
    piece = sinusoid(alpha, beta, [0.3, 0.5, 2.9])
    assert piece.value(t) == pytest.approx(alpha * np.cos(t) + beta * np.sin(t), abs=1e-12)
    assert piece.slope(t) == pytest.approx(beta * np.cos(t) - alpha * np.sin(t), abs=1e-12)


def test_crossing_is_where_the_pieces_meet() -> None:
    left, right = sinusoid(1.0, 0.5, [0.1, 0.2]), sinusoid(0.2, 1.3, [1.2, 1.3])
    expected = np.arctan2(1.0 - 0.2, 1.3 - 0.5)
    found = crossing(left, right)
    assert found is not None
    assert found.angle == pytest.approx(expected, abs=1e-12)
    assert found.jump == pytest.approx(np.hypot(0.8, 0.8), rel=1e-12)
    assert crossing(left, sinusoid(0.2, 1.3, [0.3, 0.4])) is None


def test_only_equal_sinusoids_agree() -> None:
    left = sinusoid(1.0, 0.5, [0.1, 0.2])
    assert agree(left, sinusoid(1.0, 0.5, [1.0, 1.1]), 1e-12)
    assert not agree(left, sinusoid(1.0, 0.5 + 1e-6, [1.0, 1.1]), 1e-12)


def chain(seed: int, d: int = 4, m: int = 6):
    """A network, its cells along a great circle, and the net rebuilt from the gradients of these."""
    rng = np.random.default_rng(seed)
    A, w = rng.standard_normal((d, m)), rng.standard_normal(m)
    P, Q = np.linalg.qr(rng.standard_normal((d, 2)))[0].T
    kinks = np.sort(np.arctan2(-(A.T @ P), A.T @ Q) % np.pi)
    bounds = np.concatenate([[kinks[-1] - np.pi], kinks, [kinks[0] + np.pi]])
    middle = 0.5 * (bounds[1:] + bounds[:-1])
    base = np.outer(np.cos(middle), P) + np.outer(np.sin(middle), Q)
    G = ((base @ A > 0) * w) @ A.T
    return A, w, G, base, rng


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_cell_gradients_are_the_network(seed: int) -> None:
    A, w, G, base, rng = chain(seed)
    good = np.ones(len(G), dtype=bool)
    net = with_chain(no_cells(4), G, np.full(len(G), 1e-12), good, np.ones(len(G) - 1, dtype=bool), base)
    x = rng.standard_normal((50, 4))
    np.testing.assert_allclose(net.of(x), np.maximum(x @ A, 0) @ w, atol=1e-10)


@pytest.mark.parametrize("narrow", [0, 2, 3, 6])
def test_informative_points_are_those_where_errors_of_the_cells_show(narrow: int) -> None:
    _, _, G, base, rng = chain(5)
    noise, good = np.full(len(G), 1e-9), np.ones(len(G), dtype=bool)
    noise[narrow] = 1e-6
    x, single = rng.standard_normal((40, 4)), np.ones(len(G) - 1, dtype=bool)
    net = with_chain(no_cells(4), G, noise, good, single, base)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    gaps = []
    for _ in range(300):
        wrong = with_chain(no_cells(4), G + noise[:, None] * rng.standard_normal(G.shape), noise, good, single, base)
        gaps.append(wrong.of(x) - net.of(x))
    measured = np.mean(np.square(gaps), axis=0)
    np.testing.assert_allclose(informative(net, x), measured, rtol=0.5)


def test_points_move_away_from_a_blurred_hyperplane_and_along_those_beside_it() -> None:
    _, _, G, base, rng = chain(5, d=8)
    # The third neuron a million times smaller, and the cell to its right narrow.
    G[3:] -= (1 - 1e-6) * (G[3] - G[2])
    noise, good = np.full(len(G), 1e-14), np.ones(len(G), dtype=bool)
    noise[3] = 0.02 * np.linalg.norm(G[3] - G[2])
    net = with_chain(no_cells(8), G, noise, good, np.ones(len(G) - 1, dtype=bool), base)
    x = rng.standard_normal((400, 8))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    moved = moved_away(net, x)
    assert away_from_kinks(net, x).mean() < 0.7
    assert away_from_kinks(net, moved).all()
    np.testing.assert_array_equal(moved @ net.U[3] > 0, x @ net.U[3] > 0)
    np.testing.assert_array_equal(moved @ net.U[2] > 0, x @ net.U[2] > 0)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 1)


def test_polish_removes_an_error_of_one_cell() -> None:
    A, w, G, base, rng = chain(3)
    noise = np.full(len(G), 1e-14)
    noise[2] = 1e-6
    wrong = G + noise[:, None] * rng.standard_normal(G.shape)
    good = np.ones(len(G), dtype=bool)
    net = with_chain(no_cells(4), wrong, noise, good, np.ones(len(G) - 1, dtype=bool), base)
    x = rng.standard_normal((60, 4))
    x = x[away_from_kinks(net, x)]
    fixed = corrected(net, x, np.maximum(x @ A, 0) @ w - net.of(x), 1e-15, 100)
    fresh = rng.standard_normal((500, 4))
    truth = np.maximum(fresh @ A, 0) @ w
    assert np.abs(net.of(fresh) - truth).max() > 1e-7
    assert np.abs(fixed.of(fresh) - truth).max() < 1e-11


@settings(max_examples=20, deadline=None)
@given(d=st.integers(2, 6), extra=st.integers(-1, 4), seed=st.integers(0, 10_000))
def test_orientation_finds_the_bits(d: int, extra: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = d + extra
    U, s, bits = rng.standard_normal((m, d)), rng.choice([-1.0, 1.0], m), rng.random(m) < 0.5
    lin = -((s * bits) @ U)
    found = orientation(U, s, lin, 1e-9)
    assert found is not None
    np.testing.assert_allclose((s * found) @ U, -lin, atol=1e-8)


def test_orientation_says_when_there_is_a_linear_part() -> None:
    rng = np.random.default_rng(0)
    assert orientation(rng.standard_normal((3, 5)), np.ones(3), rng.standard_normal(5), 1e-9) is None


def test_opposite_halves_of_a_neuron_are_added_up() -> None:
    u, v = np.array([1.0, 2.0]), np.array([0.5, -1.0])
    U, s = np.array([u, -2 * u, v, 3 * v]), np.array([1.0, 1.0, 1.0, -1.0])
    cells, off = np.arange(4), np.zeros(4, dtype=bool)
    net = CellNetwork(U, s, np.zeros(2), np.full(8, 1e-14), cells, cells + 4, off, np.array([0]))
    x = np.random.default_rng(0).standard_normal((20, 2))
    new, signs, lin = distinct(net)
    assert len(new) == 2
    np.testing.assert_allclose(np.maximum(x @ new.T, 0) @ signs + x @ lin, net.of(x), atol=1e-12)


def test_two_halves_that_cancel_through_a_narrow_cell_are_no_neuron() -> None:
    u, w = np.array([1.0, 2.0]), np.array([-1.0, 0.3])
    error = 1e-8 * np.array([0.3, -0.7])
    # Cells 0, 1, 2 with a badly known one in the middle: what it adds on its left it takes off on its right.
    G = np.array([w, w + u + error, w])
    net = with_chain(
        no_cells(2),
        G,
        np.array([1e-14, 1e-8, 1e-14]),
        np.ones(3, dtype=bool),
        np.ones(2, dtype=bool),
        np.array([[-0.2, -0.1], [0.1, 0.2], [0.2, 0.3]]),
    )
    new, _, _ = distinct(net)
    assert len(net.s) == 2
    assert len(new) == 0
