"""Theorem 5.1: the cross scheme with unknown and given rank and on full rank; the paper's random probes."""

import unsoftmax as us
from tests.contracts.registry import NOT_SINGLE_HEAD, Case


def rank_two() -> us.models.LowRankHead:
    return us.models.LowRankHead.random(6, 2, norm=2.0, seed=1)


CASES = [
    Case("LowRank-cross", us.learners.LowRank(), rank_two, 1e-12, outside=NOT_SINGLE_HEAD),
    Case("LowRank-cross-given", us.learners.LowRank(rank=2), rank_two, 1e-12, outside=NOT_SINGLE_HEAD),
    Case(
        "LowRank-cross-full",
        us.learners.LowRank(),
        lambda: us.models.SingleHead.random(6, norm=2.0, seed=1),
        1e-12,
        outside=NOT_SINGLE_HEAD,
    ),
    *(
        Case(
            f"LowRank-{method}",
            us.learners.LowRank(rank=1, method=method),
            lambda: us.models.LowRankHead.random(8, 1, norm=2.0, seed=1),
            1e-9,
            outside=NOT_SINGLE_HEAD,
        )
        for method in ("nuclear", "altmin")
    ),
]
