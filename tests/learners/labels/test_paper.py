"""Theorem B.1: its cost is told before it starts, and its promise holds where it can be paid."""

from __future__ import annotations

import math

import numpy as np
import pytest

import unsoftmax as us


def head(d, seed):
    """Unit v with the best possible margin, ||W||_F below 2."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((d, d))
    return us.models.SingleHead(W * (1.5 / np.linalg.norm(W)), rng.choice([-1.0, 1.0], d) / math.sqrt(d))


def paper(d, eps_W=1.0, **options):
    return us.learners.Membership(method="paper", accuracy=eps_W, W_bound=2.0, margin=d**-0.5, **options)


def test_the_theorem_at_dimension_2() -> None:
    target = head(2, 1)
    oracle = us.oracle(target, kind="membership")
    recovery = us.recover(oracle, paper(2, delta=0.05))
    cost = us.theory.membership_queries(2, 1.0, 2.0, 2**-0.5, 0.05)
    assert recovery.usage.phases["values"] + recovery.usage.phases["main"] == cost
    assert 3e6 < cost < 6e6
    assert np.abs(recovery.model.v - target.v).max() <= us.theory.membership_value_error(2, 1.0, 2.0, 2**-0.5)
    assert np.linalg.norm(recovery.model.W - target.W) <= 1.0


@pytest.mark.long
def test_the_theorem_at_dimension_4() -> None:
    target = head(4, 1)
    recovery = us.recover(us.oracle(target, kind="membership"), paper(4, delta=0.05))
    assert np.linalg.norm(recovery.model.W - target.W) <= 1.0


@pytest.mark.parametrize("d", [3, 4, 6])
def test_beyond_with_eps_v_set_by_hand(d: int) -> None:
    # The error of W follows the error of v: 40 Wbar d eps_v / mu^3 at most.
    for seed in range(2):
        target = head(d, seed)
        recovery = us.recover(us.oracle(target, kind="membership"), paper(d, eps_v=2e-2), seed=seed)
        assert np.abs(recovery.model.v - target.v).max() <= 2e-2
        assert np.linalg.norm(recovery.model.W - target.W) <= max(1.0, 40 * 2 * d * 2e-2 * d**1.5)


def test_bisection_of_the_entries_keeps_its_part_of_the_promise() -> None:
    # With v known almost exactly only the bisection's error is left: below its share of eps_W.
    from unsoftmax.learners.labels.paper import SignFlips
    from unsoftmax.oracles.stack import Stack
    from unsoftmax.run.engine import run

    for d, eps_W in ((2, 0.5), (5, 0.1), (9, 0.01)):
        target = head(d, d)
        constants = SignFlips(eps_W, 2.0, d**-0.5, 0.05, 1e-12)
        W = run(constants._scores(target.v, d), Stack(us.oracle(target, kind="membership")))
        assert np.linalg.norm(W - target.W) <= eps_W


def test_costs_the_paper_does_not_print() -> None:
    assert us.theory.membership_queries(4, 1.0, 2.0, 0.5, 0.05) == pytest.approx(3.7e8, rel=0.05)
    assert us.theory.membership_value_queries(16, 1.7e-7, 0.01) == pytest.approx(1.4e16, rel=0.5)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"W_bound": None}, "W_bound"),
        ({"margin": None}, "margin"),
        ({"W_bound": 1.0}, "W_bound"),
        ({"margin": 0.9}, "margin"),
        ({"accuracy": 1e-9}, "eps_v"),
        ({"eps_v": 0.8}, "eps_v"),
        ({"flip_probability": 0.1}, "flip_probability"),
        ({"rank": 1}, "rank"),
    ],
    ids=str,
)
def test_refused_before_a_query(options: dict, match: str) -> None:
    def never(x):
        raise AssertionError("asked")

    given = {"method": "paper", "accuracy": 1.0, "W_bound": 2.0, "margin": 0.5} | options
    with pytest.raises(us.errors.InvalidArgument, match=match):
        us.recover(us.oracle(never, 3, kind="membership"), us.learners.Membership(**given))


def test_tokens_longer_than_the_domain_are_refused() -> None:
    oracle = us.oracle(head(3, 1), kind="membership", max_norm=0.1)
    with pytest.raises(us.errors.DomainError, match="max_norm"):
        us.recover(oracle, paper(3, eps_v=0.01))
