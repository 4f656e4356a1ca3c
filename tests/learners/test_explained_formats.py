"""Gradients rounded to decimals or digits that nobody declared."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.models.explanations import gradient


def stated(recovery: us.Recovery) -> float:
    return next(claim.bound for claim in recovery.certificate if claim.name == "relative parameter error")


@pytest.mark.parametrize("decimals", [4, 8])
@pytest.mark.parametrize(("d", "rank"), [(1, None), (2, None), (3, None), (8, None), (8, 2)])
def test_undeclared_decimals_of_gradients_are_seen_in_few_dimensions(d: int, rank: int | None, decimals: int) -> None:
    for seed in range(4):
        target = us.models.SingleHead.random(d, rank=rank, norm=2.0, seed=seed)

        def rounded(X, target=target):
            return np.round(target(X), decimals), np.round(gradient(target, X), decimals)

        learner = us.learners.SingleHead() if rank is None else us.learners.LowRank()
        recovery = us.recover(us.oracle(rounded, d, kind="gradient"), learner, seed=seed)
        assert us.models.distance(recovery.model, target) <= stated(recovery) < 1


@pytest.mark.parametrize(("d", "rank"), [(2, None), (8, None), (8, 2), (12, None), (12, 2)])
def test_undeclared_digits_of_gradients_keep_the_stated_error(d: int, rank: int | None) -> None:
    def printed(numbers):
        return np.vectorize(lambda number: float(f"{number:.5g}"))(numbers)

    for seed in range(4):
        target = us.models.SingleHead.random(d, rank=rank, norm=2.0, seed=seed)

        def rounded(X, target=target):
            return printed(target(X)), printed(gradient(target, X))

        learner = us.learners.SingleHead() if rank is None else us.learners.LowRank()
        recovery = us.recover(us.oracle(rounded, d, kind="gradient"), learner, seed=seed)
        assert us.models.distance(recovery.model, target) <= stated(recovery) < 1


@pytest.mark.parametrize("d", [8, 16])
def test_a_value_of_few_digits_is_no_rounding_of_gradients(d: int) -> None:
    target = us.models.SingleHead(us.models.SingleHead.random(d, seed=0).W, np.arange(1, d + 1) / 4)
    for seed in range(8):
        recovery = us.recover(us.oracle(target, kind="gradient"), us.learners.SingleHead(), seed=seed)
        assert us.models.distance(recovery.model, target) <= min(1e-12, stated(recovery))
        assert "error of W" not in {claim.name for claim in recovery.certificate}


def test_gradients_in_one_dimension_are_asked_with_two_different_tokens() -> None:
    target = us.models.SingleHead.random(1, norm=2.0, seed=0)
    for seed in range(8):
        recovery = us.recover(us.oracle(target, kind="gradient"), us.learners.SingleHead(), seed=seed)
        assert us.models.distance(recovery.model, target) <= min(1e-12, stated(recovery))
