"""The mixing law: heads that cancel in the first order obey it, attention of another kind does not."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.diagnosis.answers import Answers
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.diagnosis.mixing import mixing
from unsoftmax.oracles.stack import Stack
from unsoftmax.run.engine import run


def law(target, dim: int, seed: int) -> Finding | None:
    oracle = us.oracle(target, dim)
    known = Answers(0.2, 0.2 * 2.0**-52, True, False, False, "float64", np.zeros(1))
    return run(mixing(oracle.spec, 1.0, known, np.random.default_rng([seed, 1]), 1000), Stack(oracle))


def test_heads_that_cancel_in_the_first_order_obey_it_all_the_same() -> None:
    """With key offsets one of seven such sums was said not to mix as softmax does."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        W, v, c = (rng.standard_normal(shape) / 40 for shape in ((4, 16, 16), (4, 16), (4, 16)))
        found = law(us.models.MultiHead(W, v / 2.5, c, -0.2), 16, seed)
        assert found is not None
        assert found.value


@pytest.mark.parametrize("power", [1, 2])
def test_weights_of_another_kind_do_not(power: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        W, v = rng.standard_normal((4, 16, 16)) / 40, rng.standard_normal((4, 16))

        def f(X: np.ndarray, W: np.ndarray = W, v: np.ndarray = v) -> np.ndarray:
            """Scores are compared with their mean, not with each other's exponentials."""
            t = np.einsum("nie,hed,nd->nhi", X, W, X[:, -1])
            weights = (1 + (t - t.mean(axis=2, keepdims=True)) ** power * X.shape[1]) / X.shape[1]
            return np.asarray(np.einsum("nhi,nie,he->n", weights, X, v))

        found = law(f, 16, seed)
        assert found is not None
        assert not found.value
