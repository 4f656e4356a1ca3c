"""Pre-norm stacks, and vector targets that are none."""

from __future__ import annotations

import numpy as np

import unsoftmax as us
from tests.contracts.registry import Case


class Around:
    """A stack with something of its own around it."""

    accepts_counts = True

    def __init__(self, stack, change):
        self.stack, self.change = stack, change
        self.dim = self.outputs = stack.dim

    def __call__(self, tokens, counts=None):
        return self.change(self.stack(tokens, counts), tokens)


def stack(**rest):
    return us.models.AttentionStack.random(8, 2, 2, 2, seed=1, **rest)


def plain():
    return us.models.AttentionStack.random(8, 2, 1, 4, norm=None, causal=True, seed=1)


def last_moves(y, tokens):
    """The last token's own place in the sequence shows in the answer."""
    return y + np.tanh(tokens[:, -1]) * tokens.shape[1]


OUTSIDE = {
    "post-norm layer": lambda: us.models.AttentionLayer.random(8, 2, norm="post", residual=True, seed=1),
    "layer without residual": lambda: us.models.AttentionLayer.random(8, 2, seed=1),
    "bounded answers": lambda: Around(stack(), lambda y, x: np.tanh(y)),
    "length of the sequence shows": lambda: Around(stack(), last_moves),
    "more heads than outputs": lambda: us.models.AttentionStack.random(8, 3, 4, 2, seed=1),
    "no attention": lambda: Around(stack(), lambda y, x: x[:, -1] + np.tanh(x[:, -1])),
    "attention squared on top": lambda: Around(stack(), lambda y, x: y + (y - x[:, -1]) ** 2),
}

CASES = [
    Case("AttentionStack", us.learners.AttentionStack(), lambda: stack(causal=True), 1e-12, outside=OUTSIDE),
    Case("AttentionStack-rms", us.learners.AttentionStack(), lambda: stack(norm="rms"), 1e-12),
    Case("AttentionStack-plain", us.learners.AttentionStack(), plain, 1e-9),
    Case("AttentionStack-networks", us.learners.AttentionStack(), lambda: stack(network=12), 1e-8),
]
