"""docs/theory/notes/multi-head.md."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us


def special_heads(d, rng):
    """Heads that are easily confused: multiples of each other, opposite, zero, and one apart."""
    W = rng.standard_normal((d, d)) / np.sqrt(d)
    return np.array([W, -W, 3 * W, 2 * W, 0 * W, rng.standard_normal((d, d)) / np.sqrt(d)])


def value_matrix(W, X):
    """f on the sequences X as a linear map of all v_h: (sequences, H d)."""
    H, d = W.shape[:2]
    heads = np.eye(H * d).reshape(H * d, H, d)
    return np.stack([us.models.MultiHead(W, v)(X) for v in heads], axis=1)


def test_lemma_1_generic_keys() -> None:
    rng = np.random.default_rng(0)
    W = special_heads(4, rng)
    w = W @ rng.standard_normal(4)
    gaps = np.linalg.norm(w[:, None] - w[None], axis=-1)[~np.eye(len(W), dtype=bool)]
    assert gaps.min() > 1e-3


def test_lemma_2_poles() -> None:
    rng = np.random.default_rng(1)
    w = special_heads(4, rng) @ rng.standard_normal(4)
    z, z2 = rng.standard_normal((2, 4))
    s, c = w @ z, np.exp(w @ z2)
    active = np.flatnonzero(np.abs(s) > 1e-9)
    poles = {h: (np.log1p(c[h]) + 1j * np.pi * (2 * np.arange(-40, 40) + 1)) / s[h] for h in active}
    for h in active:
        assert np.abs(1 + c[h] + np.exp(poles[h] * s[h])).max() < 1e-8 * (1 + c[h])
        first = (np.log1p(c[h]) + 1j * np.pi) / s[h]
        for g in active:
            if g != h:
                assert np.abs(poles[g] - first).min() > 1e-6


@pytest.mark.parametrize("q", [-5, -3, -1, 3, 5, 7])
def test_lemma_2_no_odd_multiple(q) -> None:
    c = np.exp(np.linspace(-8, 8, 401))
    assert (np.log1p(c**q) - q * np.log1p(c) < 0).all() if q > 1 else (np.log1p(c**q) - q * np.log1p(c) > 0).all()


def test_lemma_3_residues() -> None:
    rng = np.random.default_rng(2)
    v, w, z, z2 = rng.standard_normal((4, 5))
    s, c = w @ z, np.exp(w @ z2)
    pole = (np.log1p(c) + 1j * np.pi) / s

    def term(zeta):
        grown = np.exp(zeta * s)
        return (zeta * (z @ v) * grown + c * (z2 @ v)) / (1 + c + grown)

    step = 1e-6
    residue = np.mean([term(pole + step * 1j**k) * step * 1j**k for k in range(4)])
    wanted = (-pole * (1 + c) * (z @ v) + c * (z2 @ v)) / (-s * (1 + c))
    assert abs(residue - wanted) < 1e-4 * abs(wanted)
    assert abs(wanted.imag) > 1e-3


def test_lemma_3_vanishes_only_if_the_value_does() -> None:
    """The numerator is never smaller than its imaginary part, pi (1 + c) |z.v / z.w|, whatever z' adds."""
    rng = np.random.default_rng(7)
    for v, w, z, z2 in rng.standard_normal((2000, 4, 5)):
        s, c = w @ z, np.exp(w @ z2)
        pole = (np.log1p(c) + 1j * np.pi) / s
        numerator = pole * (z @ v) * np.exp(pole * s) + c * (z2 @ v)
        assert abs(numerator) >= 0.999 * np.pi * (1 + c) * abs(z @ v / s)


def test_theorem_three_tokens_show_every_value() -> None:
    rng = np.random.default_rng(3)
    d = 3
    W = special_heads(d, rng)
    X = rng.standard_normal((600, 3, d)) * rng.choice([0.5, 1.0, 3.0, 8.0], (600, 1, 1))
    spectrum = np.linalg.svd(value_matrix(W, X), compute_uv=False)
    assert spectrum[-1] > 1e-6 * spectrum[0]


def test_two_tokens_are_blind_in_d_dimensions() -> None:
    rng = np.random.default_rng(4)
    d = 3
    W = special_heads(d, rng)[[0, 1, 4]]
    X = rng.standard_normal((600, 2, d)) * rng.choice([0.5, 1.0, 3.0, 8.0], (600, 1, 1))
    spectrum = np.linalg.svd(value_matrix(W, X), compute_uv=False)
    assert (spectrum < 1e-12 * spectrum[0]).sum() == d


def test_lemma_4_partial_fractions() -> None:
    rng = np.random.default_rng(5)
    conditions = []
    for H in (2, 4, 6):
        t = np.linspace(-2, 2, H)
        k = np.geomspace(0.1, 10, H + 1)
        matrix = np.column_stack([np.exp(t) / (np.exp(t) + k[:, None]), np.ones(H + 1)])
        conditions.append(np.linalg.cond(matrix))
        x = rng.standard_normal(H + 1)
        assert np.allclose(np.linalg.solve(matrix, matrix @ x), x, rtol=1e-13 * conditions[-1] + 1e-9)
    assert conditions[0] < conditions[1] / 10 < conditions[2] / 100


def test_lemma_4_unknown_poles_take_2h_plus_1() -> None:
    """Linear in the coefficients of p and q, p(k) = F(k) q(k): one solution from 2H + 1 ratios, more from 2H."""
    H, t, c = 3, np.array([-1.0, 0.3, 1.2]), np.array([0.7, -1.1, 0.4, 2.0])
    for count, kernel in ((2 * H + 1, 1), (2 * H, 2)):
        k = np.geomspace(0.1, 10, count)[:, None]
        F = np.hstack([np.exp(t) / (np.exp(t) + k), np.ones_like(k)]) @ c
        system = np.hstack([k ** np.arange(H + 1), -F[:, None] * k ** np.arange(H + 1)])
        singular = np.linalg.svd(system / np.linalg.norm(system, axis=0), compute_uv=False)
        assert 2 * (H + 1) - np.sum(singular > 1e-9 * singular[0]) == kernel


def test_equality_is_decided_by_the_canonical_form() -> None:
    rng = np.random.default_rng(6)
    W, v = rng.standard_normal((3, 4, 4)), rng.standard_normal((3, 4))
    first = us.models.MultiHead(W[[0, 1, 2]], v)
    split = us.models.MultiHead(W[[2, 1, 0, 0]], np.array([v[2], v[1], v[0] / 3, 2 * v[0] / 3]))
    X = rng.standard_normal((200, 3, 4))
    assert np.abs(first(X) - split(X)).max() < 1e-12
    assert us.models.equivalent(first, split)
    moved = us.models.MultiHead(W + 1e-3, v)
    assert np.abs(first(X) - moved(X)).max() > 1e-6
    assert not us.models.equivalent(first, moved)
