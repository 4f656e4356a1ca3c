"""docs/theory/notes/margin-free.md."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

import unsoftmax as us

COS, SIN = 1 / np.sqrt(3), np.sqrt(2 / 3)


def simplex(n):
    """d unit vectors in the complement of the unit vector n, as far apart as can be."""
    d = len(n)
    centred = np.eye(d) - 1 / d
    basis = np.linalg.svd(centred)[2][: d - 1].T
    complement = np.linalg.svd(n[None])[2][1:]
    w = centred @ basis @ complement
    return w / np.linalg.norm(w, axis=1, keepdims=True)


def design(v, R, cos=COS):
    n = v / np.linalg.norm(v)
    w, sin = simplex(n), np.sqrt(1 - cos**2)
    return R * (cos * n + sin * w), R * (-cos * n + sin * w), n, w


def solved(T, X, Y, n, w, R, cos=COS):
    """W from the logits of all pairs, by the formula of Lemma 2."""
    d, sin = len(n), np.sqrt(1 - cos**2)
    columns = np.outer(n, np.diag(T)) / (2 * R * cos) + (d - 1) / d * w.T @ T / (R * sin)
    return np.linalg.solve(Y, columns.T).T


def logits_of(W, X, Y):
    return X @ W @ Y.T - np.einsum("jd,de,je->j", Y, W, Y)


@pytest.mark.parametrize("d", [3, 5, 16, 40])
def test_lemma_1_conditioning(d) -> None:
    v = np.random.default_rng(d).standard_normal(d)
    for tokens in design(v, 2.0)[:2]:
        assert np.allclose(np.linalg.norm(tokens, axis=1), 2.0)
        spectrum = np.sort(np.linalg.eigvalsh(tokens @ tokens.T))
        wanted = np.sort([4 * d / 3] + [4 * 2 / 3 * d / (d - 1)] * (d - 1))
        assert np.allclose(spectrum, wanted)
        assert np.isclose(np.linalg.svd(tokens)[1].min(), 2 * np.sqrt(2 * d / (3 * (d - 1))))


@pytest.mark.parametrize("d", [3, 8])
def test_lemma_2_from_logit_errors_to_w(d) -> None:
    rng = np.random.default_rng(d)
    v, W, delta = rng.standard_normal(d), rng.standard_normal((d, d)), rng.standard_normal((d, d))
    X, Y, n, w = design(v, 1.3)
    T = logits_of(W, X, Y)
    assert np.allclose(solved(T, X, Y, n, w, 1.3), W)
    E = solved(T + delta, X, Y, n, w, 1.3) - W
    wanted = np.outer(n, np.diag(delta)) / (2.6 * COS) + (d - 1) / d * w.T @ delta / (1.3 * SIN)
    assert np.allclose(E @ Y.T, wanted)


def test_lemma_3_from_answers_to_logits() -> None:
    rng = np.random.default_rng(0)
    d, R, tau = 6, 1.0, 1e-3
    worst = 0.0
    for _ in range(300):
        head = us.models.SingleHead.random(d, norm=0.9, seed=int(rng.integers(1e9)))
        e = rng.standard_normal(d) * 1e-3
        X, Y = design(head.v + e, R)[:2]
        x, y = X[rng.integers(d)], Y[rng.integers(d)]
        t, T = (x - y) @ head.W @ y, 2 * 0.9
        answer = head(np.array([[x, y]]))[0] + tau * rng.choice([-1, 1])
        gap = (x - y) @ (head.v + e)
        read = logit(np.clip((answer - y @ (head.v + e)) / gap, expit(-T), expit(T)))
        bound = (2 + 2 * np.cosh(T)) * (tau + R * np.linalg.norm(e)) / gap
        worst = max(worst, abs(read - t) / bound)
    assert 0.02 < worst <= 1


@pytest.mark.parametrize("d", [3, 8, 20])
@pytest.mark.parametrize("smallest", [1.0, 1e-9])
def test_theorem_bound(d, smallest) -> None:
    rng = np.random.default_rng(d)
    v = rng.standard_normal(d)
    v[0] *= smallest
    W = rng.standard_normal((d, d))
    W *= 0.5 / np.linalg.norm(W, 2)
    X, Y, n, w = design(v, 1.0)
    T, tau = logits_of(W, X, Y), 1e-4
    bound = 3 * np.sqrt(3) / 4 * (2 + 2 * np.cosh(np.abs(T).max() + 0.01)) * d * tau / np.linalg.norm(v)
    gap = 2 * COS * np.linalg.norm(v)
    signs = [rng.choice([-1.0, 1.0], (d, d)) for _ in range(20)]
    # Hurtful signs: those that push along the worst direction of the solve.
    u = np.linalg.svd(np.linalg.inv(Y))[0]
    signs.append(np.sign(w @ rng.standard_normal(d))[:, None] * np.sign(u[:, 0])[None, :])
    errors = [np.linalg.norm(solved(logit(expit(T) + tau * s / gap), X, Y, n, w, 1.0) - W) for s in signs]
    assert bound / 30 < max(errors) <= bound


def test_lemma_4_the_angle() -> None:
    d, tau, rng = 60, 1e-6, np.random.default_rng(0)
    v = rng.standard_normal(d)
    errors = {}
    for cos in (0.3, COS, 0.85):
        X, Y, n, w = design(v, 1.0, cos)
        noise = 4 * tau * rng.choice([-1.0, 1.0], (30, d, d)) / (2 * cos * np.linalg.norm(v))
        errors[cos] = np.sqrt(np.mean([np.linalg.norm(solved(e, X, Y, n, w, 1.0, cos)) ** 2 for e in noise]))
        assert np.isclose(errors[cos], 2 * d * tau / (np.linalg.norm(v) * cos * (1 - cos**2)), rtol=0.05)
    assert errors[COS] == min(errors.values())
    assert np.isclose(errors[COS], us.theory.norm_budget_error(d, tau, 1.0, float(np.linalg.norm(v))), rtol=0.05)


def test_corollary_outscaling() -> None:
    head = us.models.SingleHead.random(5, norm=1.0, seed=0)
    a, b = np.random.default_rng(1).standard_normal((2, 5)) / 2
    errors = []
    for lam in (1.0, 1e2, 1e4):
        x2 = b / lam
        answer = head(np.array([[lam * a + x2, x2]]))[0] + 1e-3
        errors.append(abs(logit((answer - x2 @ head.v) / (lam * a @ head.v)) - a @ head.W @ b))
    assert errors[1] < errors[0] / 50
    assert errors[2] < errors[1] / 50
