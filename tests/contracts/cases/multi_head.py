"""Generic heads, full and low rank."""

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
