"""Single tokens where the values of all heads add up to 0, or to rounding."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us


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
    rng = np.random.default_rng(800)
    W, v = rng.standard_normal((8, 8)) / np.sqrt(8), rng.standard_normal(8)
    with pytest.raises(us.errors.NotIdentifiable, match="rounding alone"):
        us.recover(us.oracle(mixed(np.stack([W, W]), np.stack([v, -v])), 8), us.learners.MultiHead())
