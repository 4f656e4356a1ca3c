"""Laws of the searches: the truth stays inside, bits are what they cost, flips are priced by the channel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.solvers.beliefs import Beliefs
from unsoftmax.solvers.bisection import Brackets

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8)


def answered(search, truth, index):
    levels = search.levels()[index, 0]
    return search.told(index, levels, truth[index] > levels)


@settings(deadline=None)
@given(truth=numbers, first=st.floats(1e-3, 1e3), rounds=st.integers(0, 60))
def test_the_truth_never_leaves_its_bracket(truth: list[float], first: float, rounds: int) -> None:
    x = np.array(truth)
    search = Brackets.open(len(x), first)
    for _ in range(rounds):
        search = answered(search, x, np.arange(len(x)))
        assert ((search.lo < x) & (x <= search.hi)).all()


@settings(deadline=None)
@given(truth=numbers, target=st.floats(1e-6, 1e3))
def test_unmet_leads_to_the_target_and_then_asks_nothing(truth: list[float], target: float) -> None:
    x = np.array(truth)
    search = Brackets.open(len(x), 1.0)
    while len(index := search.unmet(target)):
        search = answered(search, x, index)
    assert np.linalg.norm(search.radius) <= target
    assert np.linalg.norm(search.center - x) <= target


def test_a_gaussian_costs_its_entropy_and_a_quarter_bit() -> None:
    x = np.random.default_rng(0).standard_normal(4000)
    search, asked = Brackets.open(len(x), 0.7), 0
    while len(index := np.flatnonzero(search.radius > 2.0**-12)):
        search, asked = answered(search, x, index), asked + len(index)
    entropy = math.log2(math.sqrt(2 * math.pi * math.e) / (2 * search.radius.mean()))
    assert asked / len(x) <= entropy + 0.35


def test_ties_belong_below() -> None:
    search = Brackets.between(1, 0, 1)
    for _ in range(50):
        search = answered(search, np.array([0.5]), np.array([0]))
    assert search.hi[0] == 0.5


def noisy(truth, flip, miss, target, seed, scale):
    rng = np.random.default_rng(seed)
    search, asked = Beliefs.fresh(len(truth), flip, miss, scale), 0
    while len(index := np.flatnonzero(search.radius > target)):
        levels = search.levels()[index, 0]
        above = (truth[index] > levels) ^ (rng.random(len(index)) < flip)
        search, asked = search.told(index, levels, above), asked + len(index)
    return search, asked / len(truth)


@pytest.mark.parametrize("wrong", [[4], [4, 12], [4, 18], [4, 19], [3, 9, 18]])
def test_the_end_that_a_wrong_answer_moved_is_doubted(wrong: list[int]) -> None:
    """Also if a later wrong answer moves it once more, at the very end."""
    search, x = Brackets.between(1, 0, 1), 0.3337
    for k in range(20):
        level = search.levels()[:, 0]
        search = search.told(np.arange(1), level, (x > level) ^ (k in wrong))
    index, side = search.stale()
    assert index.tolist() == [0]
    end = search.hi if side[0] > 0 else search.lo
    assert np.sign(x - end[0]) == side[0]


def test_beliefs_miss_as_seldom_as_they_say_at_the_price_of_the_channel() -> None:
    flip, miss, target = 0.1, 0.02, 1e-4
    truth = np.random.default_rng(1).random(1500)
    search, cost = noisy(truth, flip, miss, target, 2, None)
    missed = np.mean(np.abs(search.center - truth) > search.radius)
    assert missed <= 2 * miss
    capacity = 1 + flip * math.log2(flip) + (1 - flip) * math.log2(1 - flip)
    assert cost <= 1.2 * (math.log2(1 / (2 * target)) + math.log2(1 / miss)) / capacity


def test_unbounded_beliefs_find_numbers_of_any_size() -> None:
    truth = np.array([0.0, 1e-3, -1.0, 30.0, -1e4])
    search, _ = noisy(truth, 0.2, 1e-4, 1e-2, 3, 1.0)
    assert np.abs(search.center - truth).max() <= 1e-2


def test_take_and_join_keep_every_number_apart() -> None:
    truth = np.random.default_rng(4).standard_normal(6)
    for fresh in (lambda n: Brackets.open(n, 1.0), lambda n: Beliefs.fresh(n, 0.1, 0.01, 1.0)):
        whole, part = fresh(6), fresh(4)
        for _ in range(5):
            part = answered(part, truth[:4], np.arange(4))
            whole = answered(whole, truth, np.arange(4))
        joined = part.joined(fresh(2))
        assert np.array_equal(joined.levels(), whole.levels())
        assert np.array_equal(joined.take(np.array([4, 1])).levels(), whole.levels()[[4, 1]])
