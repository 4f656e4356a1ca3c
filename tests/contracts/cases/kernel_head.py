"""Heads with other kernels."""

import numpy as np

import unsoftmax as us
from tests.contracts.registry import Case, network_behind, two_heads


def softplus():
    return us.models.KernelHead.random(5, "softplus", norm=2.0, seed=5)


def plain_sigmoid():
    return us.models.KernelHead.random(5, "sigmoid", normalised=False, norm=2.0, seed=5)


class _Mixed:
    """Two heads of different kernels."""

    dim, outputs = 5, None

    def __call__(self, tokens, counts=None):
        return softplus()(tokens, counts) + us.models.KernelHead.random(5, "exp", norm=2.0, seed=6)(tokens, counts)


class _Wave:
    """A kernel that is not monotone."""

    dim, outputs = 5, None

    def __call__(self, tokens, counts=None):
        head = softplus()
        scores = np.einsum("bnd,bd->bn", tokens, tokens[:, -1] @ head.W.T)
        weights = (1.2 + np.sin(2 * scores)) * (1 if counts is None else counts)
        return (weights * (tokens @ head.v)).sum(axis=1) / weights.sum(axis=1)


OUTSIDE = {
    "two kernels": _Mixed,
    "not monotone": _Wave,
    "two heads": lambda: two_heads(5),
    "network": lambda: network_behind(5),
}

CASES = [
    Case(
        "KernelHead",
        us.learners.KernelHead(),
        softplus,
        1e-12,
        outside=OUTSIDE | {"network": lambda: network_behind(5)},
    ),
    Case("KernelHead-sum", us.learners.KernelHead(kernel="sigmoid"), plain_sigmoid, 1e-12),
]
