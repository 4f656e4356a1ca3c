"""Heads apart by their denominators."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.solvers.denominators import denominators, quotients


def cube(K: int, n: int, rng: np.random.Generator) -> np.ndarray:
    numbers = rng.permutation(2**K)[:n]
    return ((numbers[:, None] >> np.arange(K)) & 1).astype(float)


def weights(H: int, K: int, spread: float, rng: np.random.Generator) -> np.ndarray:
    low, high = np.exp(spread * rng.standard_normal((2, H, K)))
    return (high - low) / (1 + low.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("H", "K"), [(1, 4), (2, 5), (4, 7)])
@pytest.mark.parametrize("spread", [0.5, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_every_head_is_found_and_nothing_else(H: int, K: int, spread: float, seed: int) -> None:
    rng = np.random.default_rng([seed, H, K])
    delta, bits = weights(H, K, spread, rng), cube(K, min(2**K, H * K + 13), rng)
    functions = np.concatenate([quotients(bits, 1 + bits @ row) for row in delta], axis=1)
    span = np.linalg.svd(functions / np.linalg.norm(functions, axis=0))[0][:, : H * K + 1]
    found = denominators(span, bits, H, 1e-6, rng)
    assert found is not None
    logs, expected = np.log(1 + bits @ found.T), np.log(1 + bits @ delta.T)
    gaps = np.abs(logs[:, :, None] - expected[:, None]).max(axis=0)
    assert sorted(gaps.argmin(axis=0)) == list(range(H))
    assert gaps.min(axis=0).max() <= 1e-5


def test_a_span_of_other_functions_has_no_heads() -> None:
    rng = np.random.default_rng(0)
    bits = cube(5, 30, rng)
    span = np.linalg.qr(np.concatenate([np.ones((30, 1)), rng.standard_normal((30, 10))], axis=1))[0]
    assert denominators(span, bits, 2, 1e-6, rng) is None
