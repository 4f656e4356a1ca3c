"""Token access over a finite vocabulary."""

import numpy as np

import unsoftmax as us
from tests.contracts.registry import Case

V = 24


def target():
    return us.models.TokenHead.random(V, 3, 1.5, seed=1)


class _Sum:
    """A target over ids made of others."""

    accepts_counts = True
    dim, outputs = 1, None

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, tokens, counts=None):
        return self.answer(tokens, counts)


def two_heads():
    a, b = (us.models.TokenHead.random(V, 3, 1.5, seed=seed) for seed in (1, 2))
    return _Sum(lambda ids, counts: a(ids, counts) + b(ids, counts))


def residual():
    head, own = target(), np.linspace(-1, 1, V)
    return _Sum(lambda ids, counts: head(ids, counts) + own[ids[:, -1]])


def network_behind():
    head = target()
    return _Sum(lambda ids, counts: np.maximum(head(ids, counts), 0.1))


def equal_values():
    return us.models.TokenHead(target().scores, np.ones(V))


def with_positions():
    head = us.models.TokenHead.random(V, 3, 1.5, seed=1)

    def answer(ids, counts):
        if counts is not None:
            ids = np.array([np.repeat(row, n)[-8:] for row, n in zip(ids, counts, strict=True)])
        K, Q = head.scores
        scores = np.einsum("bnr,br->bn", K[ids], Q[ids[:, -1]]) - 0.3 * np.arange(ids.shape[1])[::-1]
        weights = np.exp(scores)
        return (weights * head.values[ids]).sum(axis=1) / weights.sum(axis=1)

    return _Sum(answer)


def oracle(fn):
    return us.token_oracle(fn, V)


OUTSIDE = {
    "two heads": two_heads,
    "residual": residual,
    "network behind": network_behind,
    "equal values": equal_values,
    "positions": with_positions,
}

CASES = [
    Case("TokenHead", us.learners.TokenHead(), target, 1e-12, oracle=oracle, outside=OUTSIDE),
    Case("TokenHead-rank", us.learners.TokenHead(rank=3), target, 1e-12, oracle=oracle, outside=OUTSIDE),
    Case(
        "TokenHead-pairs",
        us.learners.TokenHead(),
        target,
        1e-11,
        oracle=lambda fn: us.token_oracle(fn, V, max_length=2),
    ),
]
