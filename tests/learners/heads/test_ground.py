"""Single tokens where the values of all heads add up to 0, or to rounding."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from tests.learners.test_multi_head_hard import Fixed
from unsoftmax.learners.heads.ground import read_ground
from unsoftmax.spec import OracleSpec


def mixed(W, v):
    """The same function with all heads in one sum: values that cancel leave rounding."""

    def target(X):
        s = np.einsum("bni,hij,bj->bhn", X, W, X[:, -1])
        a = np.exp(s - s.max(axis=-1, keepdims=True))
        return np.einsum("bhn,bni,hi->b", a / a.sum(axis=-1, keepdims=True), X, v)

    return target


@pytest.mark.parametrize("seed", [800, 805, 807])
def test_values_that_add_up_to_zero(seed):
    rng = np.random.default_rng(seed)
    W, v = rng.standard_normal((4, 8, 8)) / np.sqrt(8), rng.standard_normal((4, 8))
    for heads in (np.stack([v[0], -v[0]]), np.stack([v[0], v[1], -v[0] - v[1]])):
        truth = us.models.MultiHead(W[: len(heads)], heads)
        recovery = us.recover(us.oracle(mixed(truth.W, truth.v), 8), us.learners.MultiHead(), seed=seed)
        assert us.models.distance(recovery.model, truth) < 1e-11


def test_rounding_alone_is_no_head():
    """The same function whether its zeros are exact or, on another processor or in another order, are not."""
    for seed in range(800, 806):
        rng = np.random.default_rng(seed)
        W, v = rng.standard_normal((8, 8)) / np.sqrt(8), rng.standard_normal(8)
        exact = us.models.MultiHead(np.stack([W, W]), np.stack([v, -v]))
        for target in (mixed(exact.W, exact.v), exact, lambda X: np.zeros(len(X))):
            recovery = us.recover(us.oracle(target, 8), us.learners.MultiHead(), seed=seed)
            assert recovery.model.heads == 0
            assert recovery.certificate.holds


@pytest.mark.parametrize("size", [1e-12, 1e-9, 1.0])
def test_small_answers_of_a_head_contradict_a_model_that_answers_nothing(size):
    head = us.models.MultiHead.random(8, 1, seed=0)
    nothing = us.models.MultiHead(np.zeros((0, 8, 8)), np.zeros((0, 8)))
    with pytest.raises(us.errors.ModelMismatch, match="no head"):
        us.recover(us.oracle(us.models.MultiHead(head.W, size * head.v)), Fixed(nothing))


def ground_of(target, spec):
    """What one-token queries tell of a callable."""
    program = read_ground(spec, np.random.default_rng(0))
    request = next(program)
    while True:
        try:
            request = program.send(target(request[0 : len(request)].tokens))
        except StopIteration as end:
            return end.value


def test_what_values_that_cancel_leave_is_no_short_format() -> None:
    """A few units of 2^-53 are numbers of float32 too, and their noise had been taken for its."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        W, v = rng.standard_normal((2, 8, 8)) / np.sqrt(8), rng.standard_normal(8)
        for values in (np.stack([v, -v]), np.stack([v, 0.5 * v])):
            target = mixed(W, values)
            assert ground_of(target, OracleSpec(dim=8)).noise < 1e-12
            assert ground_of(lambda X, f=target: f(X).astype("float32"), OracleSpec(dim=8)).noise >= 1e-7
