"""One-layer Transformers by rays and by the odd part; attention in front of an unknown network."""

import numpy as np

import unsoftmax as us
from tests.contracts.registry import Case, affine_scores, two_heads, zero_value


def behind(activation, dim=6):
    """Attention in front of a network with another activation."""
    target = us.models.Transformer.random(dim, 8, norm=2.0, bias=True, seed=5)
    attention = us.models.AttentionBehind(target.W)

    def answers(tokens, counts=None):
        return activation(attention(tokens, counts) @ target.A + target.b) @ target.w_o

    answers.dim, answers.accepts_counts = dim, True
    return answers


def cancelling(dim=6):
    """A w_o = 0."""
    half = us.models.Transformer.random(dim, 5, norm=2.0, seed=5)
    return us.models.Transformer(half.W, np.hstack([half.A, -half.A]), np.append(half.w_o, half.w_o))


CASES = [
    Case(
        "Transformer",
        us.learners.Transformer(),
        lambda: us.models.Transformer.random(5, 7, norm=2.0, bias=True, residual=True, seed=1),
        1e-11,
        outside={
            "two heads": two_heads,
            "affine scores": affine_scores,
            "v = 0": zero_value,
            "tanh": lambda: behind(np.tanh),
            "softplus": lambda: behind(lambda u: np.logaddexp(0, u)),
        },
    ),
    Case(
        "Transformer-odd",
        us.learners.Transformer(method="odd"),
        lambda: us.models.Transformer.random(5, 7, norm=2.0, seed=1),
        1e-11,
        outside={
            "biases": lambda: us.models.Transformer.random(5, 7, bias=True, seed=1),
            "residual": lambda: us.models.Transformer.random(5, 7, residual=True, seed=1),
            "A w_o = 0": cancelling,
        },
    ),
    Case(
        "AttentionBehind",
        us.learners.AttentionBehind(),
        lambda: us.models.Transformer.random(6, 8, norm=2.0, bias=True, residual=True, seed=1),
        1e-12,
        outside={"two heads": two_heads, "v = 0": zero_value, "tanh": lambda: behind(np.tanh)},
    ),
]
