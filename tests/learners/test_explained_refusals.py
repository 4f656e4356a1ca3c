"""Explanations of few digits: targets that are not one head are refused, and one head is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.models.explanations import attention, gradient

EXPLAIN = {"gradient": gradient, "attention": attention}
D = 8


def head(seed: int, norm: float = 2.0, rank: int | None = None) -> us.models.SingleHead:
    return us.models.SingleHead.random(D, norm=norm, rank=rank, seed=1000 + seed)


def two_heads(seed: int, kind: str) -> Callable:
    """A second head of the same size; its map is not shown, or is averaged with the first's."""
    first, second = head(seed), head(seed + 4000)
    share = 1.0 if kind == "gradient" else 0.5
    return lambda X: (first(X) + second(X), share * (EXPLAIN[kind](first, X) + EXPLAIN[kind](second, X)))


def query_term(seed: int, kind: str) -> Callable:
    """A term of the query token beside the head."""
    one = head(seed)

    def answered(X):
        more = EXPLAIN[kind](one, X)
        if kind == "gradient":
            more[:, -1, 0] += 0.1
        return one(X) + 0.1 * X[:, -1, 0], more

    return answered


def temperature(seed: int, kind: str) -> Callable:
    """Scores that grow with the length of the sequence: 1 at the lengths that the learner asks."""
    one, own = head(seed), 2 if kind == "gradient" else 32

    def answered(X):
        warm = us.models.SingleHead(one.W * (1 + 0.1 * np.log(max(X.shape[1], 2) / own)), one.v)
        return warm(X), EXPLAIN[kind](warm, X)

    return answered


def bent(seed: int, kind: str) -> Callable:
    """Values behind a link that is nearly straight: by maps it shows in one number of every answer."""
    one = head(seed)

    def answered(X):
        y, more = one(X), EXPLAIN[kind](one, X)
        slope = 1 / np.cosh(y / 10) ** 2
        return 10 * np.tanh(y / 10), more * slope[:, None, None] if kind == "gradient" else more

    return answered


def rounded(target: Callable, decimals: int) -> Callable:
    return lambda X: tuple(np.round(part, decimals) for part in target(X))


@pytest.mark.parametrize("kind", ["gradient", "attention"])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("decimals", [3, 4])
@pytest.mark.parametrize("other", [two_heads, query_term, temperature])
def test_decimals_do_not_hide_what_is_not_one_head(kind: str, declared: bool, decimals: int, other: Callable) -> None:
    for seed in range(3):
        target = rounded(other(seed, kind), decimals)
        oracle = us.oracle(target, D, kind=kind, tolerance=0.5 * 10.0**-decimals if declared else 0.0)
        with pytest.raises(us.errors.UnsoftmaxError):
            us.recover(oracle, us.learners.SingleHead(), seed=seed)


@pytest.mark.parametrize("kind", ["gradient", "attention"])
@pytest.mark.parametrize("declared", [True, False])
def test_values_do_not_drown_among_the_weights_that_explain_them(kind: str, declared: bool) -> None:
    for seed in range(4):
        oracle = us.oracle(rounded(bent(seed, kind), 4), D, kind=kind, tolerance=5e-5 if declared else 0.0)
        with pytest.raises(us.errors.UnsoftmaxError):
            us.recover(oracle, us.learners.SingleHead(), seed=seed)


@pytest.mark.parametrize("kind", ["gradient", "attention"])
def test_low_rank_is_no_excuse(kind: str) -> None:
    for seed in range(3):
        target = rounded(query_term(seed, kind), 4)
        with pytest.raises(us.errors.UnsoftmaxError):
            us.recover(us.oracle(target, D, kind=kind, tolerance=5e-5), us.learners.LowRank(), seed=seed)


@pytest.mark.parametrize(("kind", "rank"), [("gradient", None), ("gradient", 2), ("attention", None)])
def test_one_head_is_known_from_three_decimals(kind: str, rank: int | None) -> None:
    for seed in range(4):
        target = head(seed, rank=rank)
        answered = rounded(lambda X, one=target: (one(X), EXPLAIN[kind](one, X)), 3)
        learner = us.learners.SingleHead() if rank is None else us.learners.LowRank()
        recovery = us.recover(us.oracle(answered, D, kind=kind, tolerance=5e-4), learner, seed=seed)
        claims = {claim.name: claim.bound for claim in recovery.certificate}
        assert np.linalg.norm(recovery.model.W - target.W) <= claims["error of W"] < 0.5 * np.linalg.norm(target.W)
        assert np.linalg.norm(recovery.model.v - target.v) <= claims["error of v"]


def test_weights_of_few_decimals_that_hardly_differ_are_rounded_and_no_sink() -> None:
    for seed in range(10):
        target = head(seed, norm=0.05)
        answered = rounded(lambda X, one=target: (one(X), attention(one, X)), 4)
        recovery = us.recover(us.oracle(answered, D, kind="attention"), us.learners.SingleHead(), seed=seed)
        stated = next(claim.bound for claim in recovery.certificate if claim.name == "relative parameter error")
        assert us.models.distance(recovery.model, target) <= stated < 0.5


@pytest.mark.parametrize("decimals", [2, 4])
def test_a_sink_is_no_rounding(decimals: int) -> None:
    def answered(X):
        scores = np.einsum("bnd,de,be->bn", X, head(0, norm=1e-3).W, X[:, -1])
        top = np.maximum(scores.max(axis=1, keepdims=True), 0.0)
        weights = np.exp(scores - top) / (np.exp(-top) + np.exp(scores - top).sum(axis=1, keepdims=True))
        return np.round(np.einsum("bn,bnd,d->b", weights, X, head(0).v), decimals), np.round(weights, decimals)

    with pytest.raises(us.errors.UnsoftmaxError):
        us.recover(us.oracle(answered, D, kind="attention"), us.learners.SingleHead())


def test_maps_of_float32_show_that_small_weights_are_dropped() -> None:
    for seed in range(4):
        target = head(seed)

        def dropping(X, one=target):
            weights = attention(one, X)
            weights = np.where(weights < 1e-5, 0.0, weights)
            value = np.einsum("bhn,bnd,d->b", weights, X, one.v)
            return value.astype(np.float32), weights.astype(np.float32)

        oracle = us.oracle(dropping, D, kind="attention", dtype="float32")
        with pytest.raises(us.errors.ModelMismatch):
            us.recover(oracle, us.learners.SingleHead(), seed=seed)


def test_weights_that_float32_hardly_holds_are_not_read() -> None:
    """Weights below 1e-38 have few digits in float32: a rank of 3 had been found for 2."""
    for d, seed in ((6, 1002), (8, 1006)):
        target = us.models.SingleHead.random(d, norm=2.0, rank=2, seed=seed)

        def narrow(X, one=target):
            return one(X).astype(np.float32), attention(one, X).astype(np.float32)

        oracle = us.oracle(narrow, d, kind="attention", dtype="float32")
        assert us.recover(oracle, us.learners.LowRank(), seed=seed - 1000).model.rank == 2


@pytest.mark.parametrize(
    ("d", "rank", "norm", "seed"), [(2, 2, 10.0, 804160), (12, 3, 2.0, 607470), (5, 2, 1.0, 510391)]
)
def test_values_that_hardly_part_the_entries_of_v_state_its_error(d: int, rank: int, norm: float, seed: int) -> None:
    """As many values as unknowns: by chance the tokens they pool are nearly dependent."""
    target = us.models.LowRankHead.random(d, rank, norm=norm, seed=seed).astype("float32")
    recovery = us.recover(us.oracle(target, kind="attention", dtype="float32"), us.learners.LowRank(), seed=seed)
    stated = {claim.name: claim.bound for claim in recovery.certificate}
    assert np.linalg.norm(recovery.model.v - target.v) <= stated["error of v"] < 0.1


@pytest.mark.parametrize(("d", "seed"), [(5, 260466), (2, 579618)])
def test_a_rank_of_one_whose_scores_differ_too_much_is_not_called_another_class(d: int, seed: int) -> None:
    target = us.models.LowRankHead.random(d, 1, norm=0.3, seed=seed).astype("float32")
    with pytest.raises(us.errors.NotIdentifiable, match="LowRank"):
        us.recover(us.oracle(target, kind="attention", dtype="float32"), us.learners.SingleHead(), seed=seed)
    found = us.recover(us.oracle(target, kind="attention", dtype="float32"), us.learners.LowRank(), seed=seed).model
    assert us.models.distance(found, target.astype("float64")) < 1e-5


@pytest.mark.parametrize(("d", "rank", "norm", "seed"), [(8, 4, 0.3, 955455), (12, 3, 10.0, 822644)])
def test_gradients_too_coarse_for_w_say_nothing_of_its_class(d: int, rank: int, norm: float, seed: int) -> None:
    target = us.models.SingleHead.random(d, norm=norm, rank=rank, seed=seed).astype("float16")
    with pytest.raises(us.errors.NotIdentifiable):
        us.recover(us.oracle(target, kind="gradient"), us.learners.LowRank(), seed=seed)


@pytest.mark.filterwarnings("error")
def test_saturated_pairs_do_not_overflow() -> None:
    for norm, seed in ((100.0, 83101), (1000.0, 1)):
        target = us.models.SingleHead.random(2, norm=norm, seed=seed)
        recovery = us.recover(us.oracle(target, kind="gradient"), us.learners.SingleHead(), seed=seed)
        assert us.models.distance(recovery.model, target) < 1e-12
