"""Language models that show their logits."""

import numpy as np

import unsoftmax as us
from tests.contracts.registry import Case
from tests.language_models import Practice

V = 60


class Served(us.models.OutputLayer):
    """An output layer with a language model in front: ids in, logits out."""

    def __call__(self, tokens, counts=None):
        return PRACTICE(np.asarray(tokens))


PRACTICE = Practice(6, V)


def target():
    return Served(us.models.OutputLayer.of_unembedding(PRACTICE.U * PRACTICE.gamma).basis)


class Bent:
    dim, outputs = 1, V

    def __init__(self, bend):
        self.bend = bend

    def __call__(self, tokens, counts=None):
        logits = PRACTICE(np.asarray(tokens))
        return logits + self.bend(logits)


def oracle(fn):
    return us.logit_oracle(lambda ids: fn(ids), V)


CASES = [
    Case(
        "OutputLayer",
        us.learners.OutputLayer(),
        target,
        1e-12,
        oracle=oracle,
        outside={"kinks": lambda: Bent(np.abs), "a little curved": lambda: Bent(lambda l: 1e-4 * np.exp(l))},
    )
]
