"""A temperature that depends on the length is named in seconds: before heads are counted, and where a head is refused.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.errors import Code, ModelMismatch
from unsoftmax.probes.base import Array

LENGTH = "weights hang on the length of the sequence"


def heads(d: int, H: int, temperature: Any) -> us.Oracle:
    """Softmax heads whose scores are multiplied by `temperature(n)`."""
    rng = np.random.default_rng(0)
    W, v = rng.standard_normal((H, d, d)) / d**0.5, rng.standard_normal((H, d))

    def f(X: Array) -> Array:
        s = np.einsum("nie,hed,nd->nhi", X, W, X[:, -1]) * temperature(X.shape[1])
        s = np.exp(s - s.max(axis=2, keepdims=True))
        a = s / s.sum(axis=2, keepdims=True)
        return np.asarray(np.einsum("nhi,nie,he->n", a, X, v))

    return us.oracle(f, dim=d)


@pytest.mark.parametrize(
    ("learner", "H", "temperature"),
    [
        (None, 1, lambda n: 1 + 1e-2 * n),
        (None, 2, lambda n: 1 + 1e-2 * np.log(n)),
        (us.learners.MultiHead(), 2, lambda n: 1 + 1e-3 * n),
        (us.learners.SingleHead(), 1, lambda n: 1 + 1e-3 * n),
        (us.learners.LowRank(), 1, lambda n: np.log(n + 1) / np.log(17)),
    ],
)
def test_a_temperature_by_length_is_named_early(learner: Any, H: int, temperature: Any) -> None:
    """Looking for up to twelve heads took 29 s before."""
    start = time.process_time()
    with pytest.raises(ModelMismatch, match=LENGTH) as refusal:
        us.recover(heads(16, H, temperature), learner)
    assert refusal.value.code is Code.LAW
    assert time.process_time() - start < 8


@pytest.mark.parametrize("dim", [4, 16])
def test_several_heads_taken_for_one_are_no_temperature(dim: int) -> None:
    with pytest.raises(ModelMismatch, match="contradict the recovered SingleHead") as refusal:
        us.recover(heads(dim, 2, lambda n: 1.0), us.learners.SingleHead())
    assert refusal.value.code is Code.CONTRADICTED
