"""Stated bounds behind every link, at every noise level, declared or not: none may be too small."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import unsoftmax as us
from tests.learners.test_approximate import bounds, errors

SERVED = {
    None: lambda f: f,
    "sigmoid": expit,
    "tanh": np.tanh,
    "exp": np.exp,
    "log": lambda f: np.log(np.where(f > 0, f, np.nan)),
}
NOISE = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "uniform": lambda rng, n: rng.uniform(-1, 1, n),
    "signs": lambda rng, n: rng.choice([-1.0, 1.0], n),
}
LEARNERS = {"full": us.learners.Approximate(), "low rank": us.learners.LowRank()}


def ratio(learner, seed):
    """Largest of error over stated bound, for W and v; None where the head is said to be lost in the noise."""
    rng = np.random.default_rng([seed, 0x11])
    link, dim = list(SERVED)[rng.integers(5)], int(rng.choice([1, 2, 3, 4, 6, 8, 12]))
    tau, limit, size = 10 ** rng.uniform(-7, -2), (None, 1.0, 2.0)[rng.integers(3)], 10.0 ** rng.integers(-1, 2)
    declared = bool(rng.integers(2))
    # Normal noise has no bound to declare.
    kind = ("uniform", "signs", "signs" if declared else "normal")[rng.integers(3)]
    rank = dim if learner == "full" else max(1, dim // 3)
    W, v = rng.standard_normal((dim, rank)) @ rng.standard_normal((rank, dim)), rng.standard_normal(dim)
    head = us.models.SingleHead(W * (3 / np.linalg.norm(W)), v * (size / np.linalg.norm(v)))

    def service(tokens):
        assert limit is None or np.linalg.norm(tokens, axis=2).max() <= limit
        return SERVED[link](head(tokens)) + tau * NOISE[kind](rng, len(tokens))

    oracle = us.oracle(service, dim, "approximate", tolerance=tau if declared else 0.0, max_norm=limit, link=link)
    try:
        recovery = us.recover(oracle, LEARNERS[learner], seed=seed)
    except us.errors.NotIdentifiable:
        return None
    return max(error / bound for error, bound in zip(errors(recovery, head), bounds(recovery), strict=True))


@pytest.mark.parametrize("learner", LEARNERS)
def test_no_bound_is_too_small(learner):
    assert max(filter(None, (ratio(learner, seed) for seed in range(20)))) < 1 + 1e-9


@pytest.mark.long
@pytest.mark.parametrize("learner", LEARNERS)
def test_no_bound_of_five_hundred_is_too_small(learner):
    ratios = [ratio(learner, seed) for seed in range(1000, 1500)]
    assert max(filter(None, ratios)) < 1 + 1e-9
    assert sum(r is None for r in ratios) < 50


def formatted(seed):
    """As `ratio`, for answers in a short number format, undeclared, and scores of any size down to 0."""
    rng = np.random.default_rng([seed, 0x22])
    link, dtype = list(SERVED)[rng.integers(5)], ("float32", "float16")[rng.integers(2)]
    dim, limit = int(rng.integers(1, 13)), (None, None, 2.0)[rng.integers(3)]
    W, v = rng.standard_normal((dim, dim)), rng.standard_normal(dim)
    norm, size = 10 ** rng.uniform(-2, 2) * (rng.integers(6) > 0), 10 ** rng.uniform(-1, 1.5)
    head = us.models.SingleHead(W * (norm / np.linalg.norm(W)), v * (size / np.linalg.norm(v)))

    def service(tokens):
        with np.errstate(over="ignore"):
            return SERVED[link](head(tokens)).astype(dtype).astype(np.float64)

    try:
        recovery = us.recover(us.oracle(service, dim, max_norm=limit, link=link), us.learners.Approximate(), seed=seed)
    except us.errors.NotIdentifiable:
        return None
    return max(error / bound for error, bound in zip(errors(recovery, head), bounds(recovery), strict=True))


def test_no_bound_on_formatted_answers_is_too_small():
    assert max(filter(None, (formatted(seed) for seed in range(15)))) < 1


@pytest.mark.long
def test_no_bound_of_a_thousand_formatted_answers_is_too_small():
    ratios = [formatted(seed) for seed in range(1000, 2000)]
    assert max(filter(None, ratios)) < 1
    assert sum(r is None for r in ratios) < 50
