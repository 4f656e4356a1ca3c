"""Heads with an unknown kernel: named rightly, exact, and refused where they cannot be known."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.models import Kernel, KernelHead

NAMES = ["exp", "softplus", "1 + elu", "sigmoid", "softcap 5", "softcap 30"]


def stated(recovery: us.Recovery) -> float:
    return next(claim.bound for claim in recovery.certificate if claim.name == "relative parameter error")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("dim", [3, 8])
def test_kernel_and_weights_are_found(name: str, normalised: bool, dim: int) -> None:
    for seed in range(3):
        norm = 10 ** np.random.default_rng(seed).uniform(-1, 1)
        target = KernelHead.random(dim, name, normalised=normalised, norm=norm, seed=seed)
        recovery = us.recover(us.oracle(target), us.learners.KernelHead(), seed=seed)
        assert recovery.model.kernel.name == target.kernel.name
        assert recovery.model.normalised == normalised
        assert us.models.distance(recovery.model, target) <= min(1e-10, stated(recovery))
        phases = recovery.usage.phases
        assert phases["values"] + phases["main"] + phases["table"] == us.theory.kernel_head_queries(dim)
        assert recovery.usage.billed - phases["verify"] <= dim**2 + dim + 150
        if target.kernel.parameter is not None:
            assert recovery.model.kernel.parameter == pytest.approx(target.kernel.parameter, rel=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("dim", [8, 16, 32])
def test_twenty_heads_of_every_kernel(name: str, normalised: bool, dim: int) -> None:
    for seed in range(100, 120):
        norm = 10 ** np.random.default_rng(seed).uniform(-1, 1)
        target = KernelHead.random(dim, name, normalised=normalised, norm=norm, seed=seed)
        recovery = us.recover(us.oracle(target), us.learners.KernelHead(), seed=seed)
        assert recovery.model.kernel.name == target.kernel.name
        assert us.models.distance(recovery.model, target) <= min(1e-8, stated(recovery))
        assert recovery.usage.billed - recovery.usage.phases["verify"] <= dim**2 + dim + 150


def test_a_kernel_outside_the_catalogue_is_kept_as_a_table() -> None:
    head = KernelHead.random(6, "exp", norm=2.0, seed=1)

    def shifted(X):
        scores = np.einsum("bnd,bd->bn", X, X[:, -1] @ head.W.T)
        weights = np.exp(np.clip(scores, -700, 700)) + 0.1
        return (weights * (X @ head.v)).sum(axis=1) / weights.sum(axis=1)

    recovery = us.recover(us.oracle(shifted, 6, name="shifted"), us.learners.KernelHead(), verify=False)
    assert recovery.model.kernel.name == "tabulated"
    assert us.models.distance(recovery.model, head) <= 1e-8
    t = np.linspace(-0.5, 0.5, 9)
    # The convention is a slope of 1 at 0.
    slope = 1 / 1.1
    expected = np.log((np.exp(t / slope) + 0.1) / 1.1)
    assert np.abs(recovery.model.kernel.log_ratio(t) - expected).max() <= 1e-8


@pytest.mark.parametrize("format", ["float32", "float16"])
def test_number_formats_keep_the_stated_error(format: str) -> None:
    for seed in range(3):
        target = KernelHead.random(6, "softplus", norm=2.0, seed=seed).astype(format)
        try:
            recovery = us.recover(us.oracle(target), us.learners.KernelHead())
        except us.errors.UnsoftmaxError:
            continue
        exact = KernelHead(target.W.astype(float), target.v.astype(float), target.kernel)
        assert us.models.distance(recovery.model, exact) <= stated(recovery)


@pytest.mark.parametrize("name", ["linear", "quadratic", "relu", "relu^2"])
@pytest.mark.parametrize("normalised", [True, False])
def test_kernels_that_are_0_at_0_are_refused(name: str, normalised: bool) -> None:
    target = KernelHead.random(4, name, normalised=normalised, norm=2.0, seed=1)
    with np.errstate(all="ignore"), pytest.raises(us.errors.UnsoftmaxError):
        us.recover(us.oracle(target), us.learners.KernelHead())


def test_another_kernel_than_the_declared_one_is_refused() -> None:
    target = KernelHead.random(5, "sigmoid", norm=2.0, seed=0)
    with pytest.raises(us.errors.ModelMismatch, match="not 'softplus'"):
        us.recover(us.oracle(target), us.learners.KernelHead(kernel="softplus"))


def test_saved_and_loaded(tmp_path) -> None:
    for kernel in ("softplus", "softcap 5", Kernel("tabulated", 2.0, np.array([0.0, 1.0, 0.1]))):
        target = KernelHead.random(4, kernel, norm=1.0, seed=0)
        target.save(tmp_path / "head.safetensors")
        again = us.models.load(tmp_path / "head.safetensors")
        X = np.random.default_rng(0).standard_normal((3, 4, 4)) / 2
        assert np.array_equal(again(X), target(X))


def test_softmax_is_the_exponential() -> None:
    head = us.models.SingleHead.random(5, norm=2.0, seed=0)
    X = np.random.default_rng(0).standard_normal((6, 7, 5))
    counts = np.random.default_rng(1).integers(1, 4, (6, 7))
    assert np.allclose(KernelHead(head.W, head.v, "exp")(X, counts), head(X, counts), rtol=1e-13)


@pytest.mark.parametrize("kernel", ["nonsense", "softcap", 3, Kernel])
def test_kernels_that_are_none(kernel) -> None:
    with pytest.raises(us.errors.InvalidArgument):
        KernelHead(np.eye(2), np.ones(2), kernel)
