"""docs/theory/notes/theorem-6-1.md."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

import unsoftmax as us

HALF, WIDE = 0.5, np.sqrt(2) / 2


def read(head, i, p, j, bound, clip, tau=0.0, value_error=0.0, signs=(1, 1, 1)):
    """u'W e_j as the theorem reads it, u = e_i (p is None) or e_i + e_p; answers off by tau, entries of v likewise."""
    eye = np.eye(head.dim)
    u = eye[i] if p is None else eye[i] + eye[p]
    known = i if p is None else p
    x = np.array([[u / bound + eye[j] / 2, eye[j] / 2]])
    answer = head(x)[0] + tau * signs[0]
    value = head.v[j] + value_error * signs[1] if head.v[j] else 0.0
    share = (answer - value / 2) / ((head.v[known] + value_error * signs[2]) / bound)
    return 2 * bound * logit(np.clip(share, expit(-clip), expit(clip)))


def test_lemma_1_range_of_logits() -> None:
    rng = np.random.default_rng(0)
    bound = 3.0
    W = rng.standard_normal((500, 4, 4))
    W *= bound / np.linalg.norm(W, axis=(1, 2))[:, None, None]
    assert np.abs(W).max() / (2 * bound) <= HALF
    assert np.abs(W[:, 0] + W[:, 1]).max() / (2 * bound) <= WIDE
    W = np.zeros((4, 4))
    W[0, 2] = W[1, 2] = bound / np.sqrt(2)
    assert (W[0, 2] + W[1, 2]) / (2 * bound) == pytest.approx(WIDE)


def test_the_published_clip_fails_with_exact_answers_and_the_wide_one_does_not() -> None:
    W = np.zeros((3, 3))
    W[0, 2] = W[1, 2] = 2 / np.sqrt(2)
    head = us.models.SingleHead(W, np.array([0.0, 0.8, 0.6]))
    truth = W[0, 2] + W[1, 2]
    assert abs(read(head, 0, 1, 2, 2.0, HALF) - truth) == pytest.approx(2 * (np.sqrt(2) - 1), abs=1e-9)
    assert abs(read(head, 0, 1, 2, 2.0, WIDE) - truth) < 1e-9


@pytest.mark.parametrize(("clip", "slope"), [(HALF, 4.2553), (WIDE, 4.5212)])
def test_lemma_2_slope(clip, slope) -> None:
    s = np.linspace(expit(-clip), expit(clip), 20001)
    assert np.max(np.diff(logit(s)) / np.diff(s)) == pytest.approx(slope, rel=1e-3)
    assert 2 + 2 * np.cosh(clip) == pytest.approx(slope, abs=1e-4)
    assert slope < 5


def targets(rng, zeros):
    d, bound = 4, 2.5
    W = rng.standard_normal((d, d))
    v = rng.uniform(0.3, 0.5, d) * rng.choice([-1, 1], d)
    v[: 2 if zeros else 0] = 0.0
    return us.models.SingleHead(W * bound / np.linalg.norm(W), v), bound, 0.3


@pytest.mark.parametrize("zeros", [False, True])
def test_lemma_3_share(zeros) -> None:
    rng = np.random.default_rng(2)
    tau_f, tau_v, worst = 1e-3, 0.1, 0.0
    for _ in range(100):
        head, bound, mu = targets(rng, zeros)
        eye, j, p = np.eye(head.dim), int(rng.integers(head.dim)), head.dim - 1
        u = eye[0] + eye[p] if zeros else eye[0]
        x = np.array([u / bound + eye[j] / 2, eye[j] / 2])
        share = expit((x[0] - x[1]) @ head.W @ x[1])
        for signs in np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, 8).T:
            v = head.v + tau_v * np.where(np.arange(head.dim) == j, signs[1], signs[2]) * (head.v != 0)
            read = (head(x[None])[0] + tau_f * signs[0] - v[j] / 2) / (u @ v / bound)
            worst = max(worst, abs(read - share) / (2 * bound * (tau_f + tau_v) / mu))
    assert 0.1 < worst <= 1


@pytest.mark.parametrize("zeros", [False, True])
def test_theorem_at_the_full_tolerance(zeros) -> None:
    """Tolerances of the branch without zeros, hurtful signs: entries within eps / d, with zeros too."""
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(60):
        head, bound, mu = targets(rng, zeros)
        d, eps = head.dim, 0.5
        tau = us.theory.approximate_tolerance(d, bound, mu, eps, zeros=False)
        for i in range(d):
            j = int(rng.integers(d))
            for signs in np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, 8).T:
                if head.v[i]:
                    error = read(head, i, None, j, bound, HALF, tau, tau, signs) - head.W[i, j]
                else:
                    p = d - 1
                    both = read(head, i, p, j, bound, WIDE, tau, tau, signs)
                    error = both - read(head, p, None, j, bound, HALF, tau, tau, -signs) - head.W[i, j]
                worst = max(worst, abs(error) / (eps / d if zeros else eps / (2 * d)))
    assert 0.1 < worst <= 1
