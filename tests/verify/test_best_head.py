"""The best head near one, by explanations."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.models.explanations import attention, gradient
from unsoftmax.spec import EXPLAINED, Kind
from unsoftmax.verify.best_head import Explaining, Round, left_over

D = 5


def draws(seed: int) -> tuple[np.random.Generator, us.models.SingleHead]:
    return np.random.default_rng(seed), us.models.SingleHead.random(D, norm=2.0, seed=seed)


@pytest.mark.parametrize("kind", ["attention", "gradient", "value"])
def test_moves_are_derivatives_and_back_is_their_adjoint(kind: Kind) -> None:
    rng, head = draws(0)
    X = rng.standard_normal((3, 4, D))
    shown = Explaining(X, head.W, head.v, kind)
    assert np.allclose(shown.rows()[:, 0], head(X), rtol=1e-13)
    if kind in EXPLAINED:
        more = (attention if kind == "attention" else gradient)(head, X).reshape(3, -1)
        assert np.allclose(shown.rows()[:, 1:], more, atol=1e-13)
    W, v, h = rng.standard_normal((D, D)), rng.standard_normal(D), 1e-6
    ends = [Explaining(X, head.W + s * h * W, head.v + s * h * v, kind).rows() for s in (1, -1)]
    assert np.allclose((ends[0] - ends[1]) / (2 * h), shown.moved(W, v), atol=1e-8)
    rows = rng.standard_normal(shown.rows().shape)
    back_W, back_v = shown.back(rows)
    assert np.isclose(np.sum(rows * shown.moved(W, v)), np.sum(back_W * W) + back_v @ v, rtol=1e-12)


@pytest.mark.parametrize("kind", ["attention", "gradient", "value"])
@pytest.mark.parametrize("seed", range(3))
def test_an_error_of_w_is_taken_off_and_another_class_is_not(kind: Kind, seed: int) -> None:
    rng, head = draws(seed)
    error = rng.standard_normal((D, D))
    found = head.W + 0.2 * error / np.linalg.norm(error)
    sequences = [rng.standard_normal((24, N, D)) for N in (2, 3, 8)]

    def left(warmer: float) -> float:
        rounds = []
        for X in sequences:
            rows = Explaining(X, head.W * (1 + warmer * (X.shape[1] > 2)), head.v, kind).rows()
            rounds.append(Round(X, np.round(rows, 4), np.full(rows.shape, 5e-5)))
        return left_over(rounds, found, head.v, (0.4, 1e-3), kind, enough=1.5)

    assert left(0.0) <= 1.5
    assert left(0.02) > 3
