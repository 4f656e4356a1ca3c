"""One-layer attention-only language models."""

import numpy as np

import unsoftmax as us
from tests.contracts.registry import Case

V, T = 40, 9


def target():
    return us.models.TokenLayer.random(10, V, 1, T, seed=3)


class Behind:
    """The same with something behind the layer, before the unembedding."""

    dim, outputs = 1, V

    def __init__(self, what):
        self.layer, self.what = target(), what

    def __call__(self, tokens, counts=None):
        return self.what(self.layer.hidden(np.asarray(tokens))) @ self.layer.basis


def oracle(fn):
    return us.logit_oracle(lambda ids: fn(ids), V, max_length=T)


CASES = [
    Case(
        "TokenLayer",
        us.learners.TokenLayer(),
        target,
        1e-9,
        oracle=oracle,
        outside={
            "a network behind": lambda: Behind(lambda h: h + np.tanh(h)),
            "a final norm": lambda: Behind(lambda h: h / np.sqrt((h**2).mean(axis=1, keepdims=True))),
        },
    )
]
