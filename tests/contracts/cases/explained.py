"""Answers that carry a gradient or attention weights."""

import unsoftmax as us
from tests.contracts.registry import Case, affine_scores, constant_term, two_heads, zero_value
from unsoftmax.models.explanations import attention, gradient


class Explaining:
    """A target that explains its answers; whoever watches it sees every sequence."""

    def __init__(self, fn, kind):
        inner = getattr(fn, "target", fn)
        self.fn = fn
        self.model = inner if isinstance(inner, us.models.Model) else us.models.SingleHead.random(fn.dim, seed=0)
        self.explain = gradient if kind == "gradient" else attention

    def __call__(self, X):
        return self.fn(X), self.explain(self.model, X)


def showing(kind):
    return lambda fn: us.oracle(Explaining(fn, kind), fn.dim, kind=kind, name=f"explained by {kind}")


def full():
    return us.models.SingleHead.random(6, norm=2.0, seed=5)


def thin():
    return us.models.SingleHead.random(8, rank=2, norm=2.0, seed=5)


OUTSIDE = {"affine scores": affine_scores, "constant term": constant_term, "two heads": two_heads}

CASES = [
    Case(
        "SingleHead-gradient",
        us.learners.SingleHead(),
        full,
        1e-13,
        showing("gradient"),
        {**OUTSIDE, "v = 0": zero_value},
    ),
    Case("LowRank-gradient", us.learners.LowRank(), thin, 1e-12, showing("gradient"), {"v = 0": zero_value}),
    Case(
        "MultiHead-gradient",
        us.learners.MultiHead(heads=2),
        two_heads,
        1e-11,
        showing("gradient"),
        {"affine scores": affine_scores, "constant term": constant_term},
    ),
    Case("SingleHead-attention", us.learners.SingleHead(), full, 1e-13, showing("attention"), OUTSIDE),
    Case("LowRank-attention", us.learners.LowRank(rank=2), thin, 1e-12, showing("attention"), {"full rank": full}),
    Case(
        "MultiHead-attention",
        us.learners.MultiHead(heads=2),
        two_heads,
        1e-12,
        showing("attention"),
        {"one head": full},
    ),
]
