"""Theorem 4.1 and the paper's coordinate construction."""

import unsoftmax as us
from tests.contracts.registry import NOT_SINGLE_HEAD, Case

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
