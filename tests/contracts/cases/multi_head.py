"""Generic heads, full and low rank."""

import numpy as np

import unsoftmax as us
from tests.contracts.registry import Case, affine_scores, constant_term, network_behind, two_heads

OUTSIDE = {"network behind": network_behind, "affine scores": affine_scores, "constant term": constant_term}

CASES = [
    Case("MultiHead", us.learners.MultiHead(), two_heads, 1e-11, outside=OUTSIDE),
    Case(
        "MultiHead-low-rank",
        us.learners.MultiHead(),
        lambda: us.models.MultiHead.random(10, 2, rank=2, norm=2.0, seed=3),
        1e-11,
    ),
]


def with_offsets() -> us.models.MultiHead:
    heads = two_heads()
    return us.models.MultiHead(heads.W, heads.v, np.linspace(-1, 1, 12).reshape(2, 6), 0.5)


CASES += [
    Case(
        "MultiHead-affine",
        us.learners.MultiHead(affine=True),
        with_offsets,
        1e-10,
        outside={"network behind": network_behind},
    ),
    Case("MultiHead-affine-of-plain", us.learners.MultiHead(affine=True), two_heads, 1e-10),
]


def orthogonal() -> us.models.MultiHead:
    rng = np.random.default_rng(4)
    W = np.zeros((2, 6, 6))
    v = np.zeros((2, 6))
    for h, part in enumerate((slice(0, 2), slice(2, 6))):
        k = part.stop - part.start
        W[h, part, part], v[h, part] = rng.standard_normal((k, k)), rng.standard_normal(k)
    return us.models.MultiHead(W, v)


CASES += [
    Case("MultiHead-rational", us.learners.MultiHead(method="rational"), two_heads, 1e-11, outside=OUTSIDE),
    Case(
        "MultiHead-bounded",
        us.learners.MultiHead(),
        lambda: us.models.MultiHead.random(4, 2, norm=2.0, seed=5),
        1e-11,
        oracle=lambda target: us.oracle(target, max_norm=3.0, max_length=8),
    ),
    Case(
        "OrthogonalHeads", us.learners.OrthogonalHeads(), orthogonal, 1e-10, outside={**OUTSIDE, "two heads": two_heads}
    ),
    Case("OrthogonalHeads-known", us.learners.OrthogonalHeads([np.eye(6)[:, :2], np.eye(6)[:, 2:]]), orthogonal, 1e-12),
]

CASES += [
    Case(
        "AttentionBehind-heads",
        us.learners.AttentionBehind(heads=None),
        lambda: us.models.MultiHeadTransformer.random(6, 2, 12, norm=4.0, bias=True, seed=2),
        1e-10,
    ),
    Case(
        "Transformer-heads",
        us.learners.Transformer(heads=None),
        lambda: us.models.MultiHeadTransformer.random(6, 2, 8, norm=4.0, seed=2),
        1e-7,
        outside={"several heads and a residual": lambda: us.models.Transformer.random(6, 8, residual=True, seed=5)},
    ),
]
