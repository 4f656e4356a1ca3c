"""Theorem 4.1 and the paper's coordinate construction."""

import unsoftmax as us
from tests.contracts.registry import (
    NOT_SINGLE_HEAD,
    Case,
    affine_scores,
    network_behind,
    two_heads,
    zero_value,
)

CASES = [
    Case(
        "SingleHead",
        us.learners.SingleHead(),
        lambda: us.models.SingleHead.random(6, norm=2.0, seed=1),
        1e-13,
        outside=NOT_SINGLE_HEAD,
    ),
    Case(
        "SingleHead-coordinate",
        us.learners.SingleHead(probes="coordinate"),
        lambda: us.models.SingleHead.random(6, norm=2.0, seed=1),
        1e-12,
        outside=NOT_SINGLE_HEAD,
    ),
]
CASES.append(
    Case(
        "SingleHead-size-declared",
        us.learners.SingleHead(W_bound=4.0),
        lambda: us.models.SingleHead.random(6, norm=2.0, seed=1),
        1e-13,
        outside={"two heads": two_heads},
    )
)
CASES.append(
    Case(
        "SingleHead-affine",
        us.learners.SingleHead(affine=True),
        affine_scores,
        1e-10,
        outside={"two heads": two_heads, "network behind": network_behind, "v = 0": zero_value},
    )
)
