"""Labels only: bisection in lockstep."""

from functools import partial

import unsoftmax as us
from tests.contracts.registry import NOT_SINGLE_HEAD, Case

CASES = [
    Case(
        "Membership",
        us.learners.Membership(accuracy=1e-9),
        lambda: us.models.SingleHead.random(6, norm=2.0, seed=1),
        1e-9,
        oracle=partial(us.oracle, kind="membership"),
        outside=NOT_SINGLE_HEAD,
    ),
]
