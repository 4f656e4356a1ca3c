"""Labels and low rank: the bars, ranks found, given too large or too small, weak directions, flips."""

from __future__ import annotations

import math

import numpy as np
import pytest

import unsoftmax as us
from tests.learners.rates import few_above
from tests.weights import minilm_head
from unsoftmax.learners.labels.cross import sparing_rounds

ACCURACY = 1e-9


def recovered(target, rank, accuracy=ACCURACY, seed=0):
    oracle = us.oracle(target, kind="membership")
    recovery = us.recover(oracle, us.learners.Membership(accuracy=accuracy, rank=rank), seed=seed)
    assert us.models.distance(recovery.model, target) <= accuracy
    return recovery


def head(d, rank, seed, sparsity=0.0):
    norm = 10 ** np.random.default_rng(seed).uniform(-1, 2)
    return us.models.SingleHead.random(d, rank=rank, norm=norm, sparsity=sparsity, seed=seed)


@pytest.mark.parametrize("rank", [4, None])
@pytest.mark.parametrize("seed", range(3))
def test_bars_at_dimension_64_and_rank_4(rank: int | None, seed: int) -> None:
    bits = math.log2(1 / ACCURACY)
    recovery = recovered(head(64, 4, seed, sparsity=0.5 * (seed % 2)), rank, seed=seed)
    assert recovery.model.rank == 4
    assert recovery.usage.billed <= 1.4 * us.theory.low_rank_unknowns(64, 4) * bits
    assert recovery.usage.rounds <= 2 * bits + 40


@pytest.mark.long
@pytest.mark.parametrize("rank", [4, None])
@pytest.mark.parametrize("seed", range(3, 20))
def test_bars_at_rank_4_on_more_seeds(rank: int | None, seed: int) -> None:
    test_bars_at_dimension_64_and_rank_4(rank, seed)


@pytest.mark.parametrize(("d", "rank"), [(1, 1), (2, 1), (8, 8), (12, 12), (16, 1), (24, 7)])
def test_the_rank_is_found(d: int, rank: int) -> None:
    assert recovered(head(d, rank, d), None).model.rank == rank


def test_a_rank_given_too_large_does_no_harm() -> None:
    for seed in range(3):
        recovered(head(12, 2, seed), 5, seed=seed)


def test_a_rank_given_too_small_is_contradicted() -> None:
    target = head(12, 4, 1)
    with pytest.raises(us.errors.ModelMismatch, match="near the boundary"):
        us.recover(us.oracle(target, kind="membership"), us.learners.Membership(rank=3))


@pytest.mark.parametrize("rank", [4, None])
def test_weak_directions_are_not_overlooked(rank: int | None) -> None:
    v = us.models.SingleHead.random(10, seed=1).v
    target = us.models.SingleHead(np.diag([1, 1e-2, 1e-4, 1e-6, 0, 0, 0, 0, 0, 0]), v)
    assert recovered(target, rank).model.rank == 4


def test_one_entry_alone() -> None:
    v = us.models.SingleHead.random(9, sparsity=0.5, seed=2).v
    assert recovered(us.models.SingleHead(np.outer(np.eye(9)[2], np.eye(9)[5]), v), None).model.rank == 1


@pytest.mark.long
def test_a_real_trained_head_from_labels_alone() -> None:
    real = minilm_head(2, 5)
    target = us.models.LowRankHead(real.K, real.Q, real.v / np.linalg.norm(real.v))
    recovery = recovered(target, 32, accuracy=1e-6)
    assert recovery.usage.billed <= 1.4 * us.theory.low_rank_unknowns(384, 32) * math.log2(1e6)


@pytest.mark.parametrize("rank", [2, None])
def test_flips(rank: int | None) -> None:
    target = us.models.SingleHead.random(12, rank=2, seed=1)
    rng = np.random.default_rng(1)
    oracle = us.oracle(lambda x: (target(x) > 0) ^ (rng.random(len(x)) < 0.1), 12, kind="membership")
    model = us.recover(oracle, us.learners.Membership(accuracy=1e-3, rank=rank, flip_probability=0.1)).model
    assert us.models.distance(model, target) <= 1e-3


@pytest.mark.parametrize("rank", [0, 7, 1.5, "half"])
def test_a_rank_that_makes_no_sense(rank) -> None:
    with pytest.raises(us.errors.InvalidArgument, match="rank"):
        us.recover(us.oracle(head(6, 2, 1), kind="membership"), us.learners.Membership(rank=rank))


def decaying(d, rank, ratio, seed):
    """Singular values 1, ratio, ratio^2, ... times 4."""
    rng = np.random.default_rng(seed)
    K, Q = (np.linalg.qr(rng.standard_normal((d, rank)))[0] for _ in range(2))
    v = rng.standard_normal(d)
    return us.models.SingleHead(4 * (K * ratio ** np.arange(rank)) @ Q.T, v / np.linalg.norm(v))


@pytest.mark.parametrize("rank", [4, None])
@pytest.mark.parametrize(
    ("d", "ratio", "seeds"),
    [
        (32, 0.1, range(1)),
        *(pytest.param(d, ratio, range(1, 6), marks=pytest.mark.long) for d in (32, 64) for ratio in (0.3, 0.1, 0.03)),
    ],
)
def test_rounds_do_not_grow_with_a_decaying_spectrum(d: int, ratio: float, seeds: range, rank: int | None) -> None:
    # W and the direction of v: a round a bit each. Finding the rank reads a block down to the accuracy before that.
    bits = math.log2(1 / ACCURACY)
    most = 2 * bits + 40 + (bits / sparing_rounds(ACCURACY) if rank is None else 0)
    for seed in seeds:
        recovery = recovered(decaying(d, 4, ratio, seed), rank, seed=seed)
        assert recovery.model.rank == 4
        assert recovery.usage.rounds <= most


@pytest.mark.parametrize("seeds", [range(2, 3), pytest.param(range(60), marks=pytest.mark.long)])
def test_directions_near_the_accuracy_are_seldom_overlooked(seeds: range) -> None:
    """A direction a few accuracies in size is looked for by random probes: one in seven is nearly orthogonal to all.

    What is then left out is that direction, and no other error grows with it.
    """
    errors = []
    for seed in seeds:
        target = decaying(32, 8, 0.03, seed)
        learner = us.learners.Membership(accuracy=ACCURACY, rank=None)
        model = us.recover(us.oracle(target, kind="membership"), learner, seed=seed).model
        errors.append(us.models.distance(model, target))
    # Nine of sixty are; of a single draw, one may be.
    few_above(errors, ACCURACY, max(1 / 4, 1 / len(errors)))
    assert max(errors) <= 10 * ACCURACY
