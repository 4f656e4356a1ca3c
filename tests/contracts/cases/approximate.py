"""Approximate answers: the norm-budget design and Theorem 6.1, on noisy oracles."""

import unsoftmax as us
from tests.contracts.registry import NOT_SINGLE_HEAD, Case


def noisy(target):
    return us.oracles.Perturbed(us.oracle(target), 1e-6, adversarial=True)


def noisy_and_short(target):
    return us.oracles.Perturbed(us.oracle(target, max_norm=1.0, max_length=30), 1e-7)


def head():
    return us.models.SingleHead.random(6, norm=2.0, seed=1)


CASES = [
    Case("Approximate", us.learners.Approximate(), head, 1e-11, noisy, NOT_SINGLE_HEAD),
    Case("Approximate-limit", us.learners.Approximate(), head, 1e-5, noisy_and_short, NOT_SINGLE_HEAD),
    Case(
        "Approximate-paper",
        us.learners.Approximate(method="paper", W_bound=5.0, margin=0.05),
        head,
        1e-3,
        noisy_and_short,
        NOT_SINGLE_HEAD,
    ),
    Case(
        "LowRank-approximate",
        us.learners.LowRank(rank=2),
        lambda: us.models.LowRankHead.random(6, 2, norm=2.0, seed=1),
        1e-10,
        noisy,
        NOT_SINGLE_HEAD,
    ),
]
