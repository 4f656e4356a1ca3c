"""Heads with other kernels than the exponential are named and routed to their learner; nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import unsoftmax as us
from tests.diagnosis.targets import parameters, scores
from unsoftmax.diagnosis import allowance

KERNELS = ("softplus", "1 + elu", "sigmoid", "softcap 5", "softcap 30")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("dim", [4, 17])
def test_kernels_are_named(kernel, normalised, dim) -> None:
    target = us.oracle(us.models.KernelHead.random(dim, kernel, normalised=normalised, norm=2.0, seed=dim))
    found = us.diagnose(target)
    assert (found.family, found["kernel"], found["normalised"]) == ("kernel head", kernel, normalised)
    assert isinstance(found.learner, us.learners.KernelHead)
    assert found.usage.billed <= allowance(target.spec)


def test_a_head_with_another_kernel_is_recovered_without_being_told() -> None:
    head = us.models.KernelHead.random(8, "sigmoid", norm=2.0, seed=5)
    recovery = us.recover(us.oracle(head))
    assert us.models.distance(recovery.model, head) < 1e-10
    assert recovery.model.kernel.name == "sigmoid"


def two_kernels(X):
    """Two heads with a kernel each."""
    return us.models.KernelHead.random(8, "sigmoid", norm=2.0, seed=1)(X) + us.models.KernelHead.random(
        8, "softplus", norm=2.0, seed=2
    )(X)


def shifted(X):
    """The score's kernel depends on the token too."""
    W, v = parameters(8, 1)
    weights = 0.1 + expit(scores(X, W) + X.sum(axis=2))
    return (weights * (X @ v)).sum(axis=1) / weights.sum(axis=1)


def bumps(X):
    """A kernel that is not monotone."""
    W, v = parameters(8, 1)
    weights = 2 + np.sin(scores(X, W))
    return (weights * (X @ v)).sum(axis=1) / weights.sum(axis=1)


@pytest.mark.parametrize("target", [two_kernels, shifted, bumps])
def test_what_is_no_kernel_of_one_score_stays_outside(target) -> None:
    oracle = us.oracle(target, 8)
    found = us.diagnose(oracle)
    assert (found.family, found.learner) == ("outside", None)
    assert found.usage.billed <= allowance(oracle.spec)
