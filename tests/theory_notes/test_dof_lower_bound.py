"""docs/theory/notes/dof-lower-bound.md."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us


def design(v):
    """The sequences of Theorem 4.1 for a head whose v is not small anywhere."""
    d = len(v)
    ones = [np.eye(d)[i][None] for i in range(d)]
    pairs = [np.array([np.eye(d)[i] + np.eye(d)[j], np.eye(d)[j]]) for i in range(d) for j in range(d)]
    return ones, pairs


def answers(theta, d, ones, pairs):
    head = us.models.SingleHead(theta[: d * d].reshape(d, d), theta[d * d :])
    return np.concatenate([head(np.array(part)) for part in (ones, pairs) if part])


def jacobian(theta, d, ones, pairs, step=1e-6):
    eye = np.eye(len(theta)) * step
    return np.column_stack(
        [(answers(theta + e, d, ones, pairs) - answers(theta - e, d, ones, pairs)) / (2 * step) for e in eye]
    )


@pytest.fixture
def head():
    rng = np.random.default_rng(0)
    return us.models.SingleHead(rng.standard_normal((3, 3)) / 2, np.array([0.9, -1.1, 1.3]))


def test_lemma_1_adaptive_answers_are_continuous(head) -> None:
    """A query that depends on the answer before it: small changes of the model change the answers little."""
    rng = np.random.default_rng(1)

    def transcript(W):
        model, y = us.models.SingleHead(W, head.v), []
        x = np.ones((1, 2, 3))
        for _ in range(5):
            x = np.array([[[1.0, 0.5, -0.5], [0.3, 1.0, 0.2]]]) * (1 + 0.1 * (y[-1] if y else 0.0))
            y.append(float(model(x)[0]))
        return np.array(y)

    move = rng.standard_normal((3, 3))
    gaps = [np.abs(transcript(head.W + h * move) - transcript(head.W)).max() for h in (1e-2, 1e-4, 1e-6)]
    assert gaps[0] < 1
    assert gaps[1] < gaps[0] / 30
    assert gaps[2] < gaps[1] / 30


def test_lemma_2_one_query_less_leaves_a_curve(head) -> None:
    ones, pairs = design(head.v)
    theta = np.concatenate([head.W.ravel(), head.v])
    spectrum = np.linalg.svd(jacobian(theta, 3, ones, pairs), compute_uv=False)
    assert len(spectrum) == us.theory.single_head_unknowns(3)
    assert spectrum[-1] > 1e-3 * spectrum[0]
    fewer = pairs[:-1]
    wanted, now = answers(theta, 3, ones, fewer), theta.copy()
    for _ in range(20):
        kernel = np.linalg.svd(jacobian(now, 3, ones, fewer))[2][-1]
        now = now + 0.05 * kernel * np.sign(kernel[np.argmax(np.abs(kernel))])
        for _ in range(4):
            J = jacobian(now, 3, ones, fewer)
            now = now - np.linalg.pinv(J) @ (answers(now, 3, ones, fewer) - wanted)
    assert np.abs(answers(now, 3, ones, fewer) - wanted).max() < 1e-12
    assert np.linalg.norm(now - theta) > 0.5
    assert abs(answers(now, 3, ones, pairs)[-1] - answers(theta, 3, ones, pairs)[-1]) > 1e-2


def test_counts_of_the_learners_meet_the_bound() -> None:
    for d in (2, 7, 30):
        assert us.theory.single_head_queries(d) == us.theory.single_head_unknowns(d)
        assert us.theory.low_rank_queries(d, 2) == us.theory.low_rank_unknowns(d, 2)
        assert us.theory.multi_head_queries(d, 3) == us.theory.multi_head_unknowns(d, 3)
