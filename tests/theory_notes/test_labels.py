"""docs/theory/notes/labels.md."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

import unsoftmax as us


@pytest.mark.parametrize(("dim", "eps"), [(1, 0.05), (2, 0.1), (3, 0.2)])
def test_lemma_1_packing(dim, eps) -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (20000, dim))
    points = points[np.linalg.norm(points, axis=1) <= 1]
    kept = 0
    while len(points):
        # The first that is left is kept, and what is near to it is not.
        points = points[np.linalg.norm(points - points[0], axis=1) > 2 * eps]
        kept += 1
    assert kept >= (1 / (2 * eps)) ** dim


def test_lemma_2_transcripts() -> None:
    """Different models come from different labels, and there are no more of them than labels can tell."""
    learner, outcomes = us.learners.Membership(accuracy=0.05), {}
    for seed in range(12):
        head, seen = us.models.SingleHead.random(2, norm=1.0, seed=seed), []

        def target(X, head=head, seen=seen):
            labels = head(X) > 0
            seen.extend(labels.tolist())
            return labels

        found = us.recover(us.oracle(target, 2, kind="membership"), learner, verify=False)
        key = tuple(seen)
        model = (found.model.W.tobytes(), found.model.v.tobytes())
        assert outcomes.setdefault(key, model) == model
    assert len(outcomes) <= 2 ** max(len(key) for key in outcomes)
    assert len(set(outcomes.values())) == len(outcomes) == 12


@pytest.mark.parametrize("d", [2, 4])
def test_theorem_no_learner_asks_less(d) -> None:
    unknowns = d * d + d - 1
    for eps in (1e-2, 1e-6):
        head = us.models.SingleHead.random(d, norm=1.0, seed=d)
        recovery = us.recover(us.oracle(head, kind="membership"), us.learners.Membership(accuracy=eps), verify=False)
        assert recovery.usage.billed >= unknowns * np.log2(1 / (2 * eps))
        assert us.theory.membership_floor(d, eps) == pytest.approx(unknowns * np.log2(1 / eps))


def test_lemma_3_one_flip() -> None:
    rng = np.random.default_rng(0)
    head = us.models.SingleHead.random(5, norm=2.0, seed=0)
    tried = 0
    while tried < 20:
        a, b = rng.standard_normal((2, 5))
        if not a @ head.v > 0 > b @ head.v:
            continue
        tried += 1
        flip = np.sqrt(-(b @ head.v) / (a @ head.v) / expit(a @ head.W @ b))
        lam = flip * np.geomspace(1e-3, 1e3, 401)
        x2 = b / lam[:, None]
        labels = head(np.stack([lam[:, None] * a + x2, x2], axis=1)) > 0
        off = np.abs(lam / flip - 1) > 1e-9
        assert (labels[off] == (lam > flip)[off]).all()


def test_lemma_4_ratios_of_v() -> None:
    head = us.models.SingleHead.random(6, seed=1)
    s, p = np.sign(head.v), int(np.argmax(np.abs(head.v)))
    for i in range(6):
        for c in (0.1, 0.5, 0.9):
            x = s[i] * np.eye(6)[i] - c * s[p] * np.eye(6)[p]
            if i != p:
                assert (head(x[None, None])[0] > 0) == (abs(head.v[i]) / abs(head.v[p]) > c)


def test_lemma_5_a_label_is_a_bit_of_t() -> None:
    rng = np.random.default_rng(2)
    head, T = us.models.SingleHead.random(5, norm=1.0, seed=2), 3.0
    tried = 0
    while tried < 10:
        a, b = rng.standard_normal((2, 5))
        t = a @ head.W @ b
        if not (a @ head.v > 0 > b @ head.v and abs(t) <= T):
            continue
        tried += 1
        ratio = -(b @ head.v) / (a @ head.v)
        low, high = np.log(ratio / expit(T)), np.log(ratio / expit(-T))
        for _ in range(30):
            h, middle = (high - low) / 2, (low + high) / 2
            read = np.clip(logit(np.clip(ratio / np.exp(middle), expit(-T), expit(T))), -T, T)
            assert abs(read - t) <= h * (1 + np.exp(T)) + 1e-9
            lam = np.exp(middle / 2)
            above = head(np.array([[lam * a + b / lam, b / lam]]))[0] > 0
            low, high = (low, middle) if above else (middle, high)
        assert h < 1e-7


def test_construction_costs_one_label_per_further_bit() -> None:
    head = us.models.SingleHead.random(4, norm=1.0, seed=3)
    billed = [
        us.recover(us.oracle(head, kind="membership"), us.learners.Membership(accuracy=eps), verify=False).usage.billed
        for eps in (2.0**-10, 2.0**-30)
    ]
    assert (billed[1] - billed[0]) / (20 * (4 * 4 + 4 - 1)) == pytest.approx(1.0, abs=0.15)
