"""Generic multi-head targets: H found, W and v to rounding, near one query per unknown."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us


def errors(found: us.models.MultiHead, target: us.models.MultiHead) -> tuple[float, float]:
    """Worst relative error of W and of v over the heads, matched by W."""
    from scipy.optimize import linear_sum_assignment

    assert found.heads == target.heads
    gaps = np.array([[np.linalg.norm(a - b) / np.linalg.norm(b) for b in target.W] for a in found.W])
    rows, columns = linear_sum_assignment(gaps)
    v = [
        np.linalg.norm(found.v[i] - target.v[j]) / np.linalg.norm(target.v[j])
        for i, j in zip(rows, columns, strict=True)
    ]
    return float(gaps[rows, columns].max()), float(max(v))


@pytest.mark.parametrize(("d", "H", "bar"), [(16, 2, 1.4), (16, 4, 1.4), (32, 4, 1.2)])
def test_full_rank_at_little_more_than_one_query_per_unknown(d: int, H: int, bar: float) -> None:
    ratios = []
    for seed in range(3):
        target = us.models.MultiHead.random(d, H, seed=seed)
        recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed + 10)
        W, v = errors(recovery.model, target)
        assert W <= 1e-10
        assert v <= 1e-12
        assert recovery.usage.phases["values"] + recovery.usage.phases["main"] == us.theory.multi_head_queries(d, H)
        assert recovery.usage.billed < us.theory.rational_queries(d, H)
        ratios.append(recovery.usage.billed / us.theory.multi_head_unknowns(d, H))
    assert np.median(ratios) <= bar


def test_low_rank_is_found_and_paid_for_as_such() -> None:
    target = us.models.MultiHead.random(32, 4, rank=8, seed=1)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=2)
    W, v = errors(recovery.model, target)
    assert W <= 1e-10
    assert v <= 1e-12
    assert recovery.usage.billed <= 1.6 * us.theory.multi_head_unknowns(32, 4, 8)


@pytest.mark.parametrize("tolerance", [1e-6, 1e-3])
def test_additive_noise_is_outscaled(tolerance: float) -> None:
    target = us.models.MultiHead.random(8, 2, seed=3)
    oracle = us.oracles.Perturbed(us.oracle(target), tolerance)
    recovery = us.recover(oracle, us.learners.MultiHead(), seed=1)
    assert max(errors(recovery.model, target)) <= 1e-9


def test_float32_target() -> None:
    target = us.models.MultiHead.random(8, 2, norm=2.0, seed=4)
    oracle = us.oracle(target.astype("float32"), dtype="float32")
    recovery = us.recover(oracle, us.learners.MultiHead(), seed=1)
    assert max(errors(recovery.model, target)) <= 1e-3


@pytest.mark.parametrize(("d", "H", "seed", "declared"), [(16, 3, 401, "float32"), (8, 2, 410, "float64")])
def test_float32_columns_that_come_out_wrong_are_asked_with_shorter_tokens(d, H, seed, declared) -> None:
    target = us.models.MultiHead.random(d, H, norm=2.0, seed=seed)
    oracle = us.oracle(target.astype("float32"), d, dtype=declared)
    recovery = us.recover(oracle, us.learners.MultiHead(), seed=seed)
    assert max(errors(recovery.model, target)) <= 1e-3
