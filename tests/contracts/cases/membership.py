"""Labels only: bisection in lockstep, of all entries or of a cross, and Theorem B.1."""

from functools import partial

import numpy as np

import unsoftmax as us
from tests.contracts.registry import NOT_SINGLE_HEAD, Case, two_heads

labels = partial(us.oracle, kind="membership")


def two_unit_heads() -> us.models.MultiHead:
    """Labels do not show the common scale of the v_h: it is 1, as the learner has it."""
    heads = two_heads()
    return us.models.MultiHead(heads.W, heads.v / np.linalg.norm(heads.v))


CASES = [
    Case(
        "Membership",
        us.learners.Membership(accuracy=1e-9),
        lambda: us.models.SingleHead.random(6, norm=2.0, seed=1),
        1e-9,
        oracle=labels,
        outside=NOT_SINGLE_HEAD,
    ),
    Case(
        "Membership-rank-2",
        us.learners.Membership(accuracy=1e-6, rank=2),
        lambda: us.models.SingleHead.random(6, rank=2, norm=2.0, seed=1),
        1e-6,
        oracle=labels,
        outside={**NOT_SINGLE_HEAD, "full rank": lambda: us.models.SingleHead.random(6, norm=2.0, seed=1)},
    ),
    Case(
        "Membership-any-rank",
        us.learners.Membership(accuracy=1e-6, rank=None),
        lambda: us.models.SingleHead.random(6, rank=2, norm=2.0, seed=1),
        1e-6,
        oracle=labels,
        outside=NOT_SINGLE_HEAD,
    ),
    Case(
        "Membership-heads",
        us.learners.Membership(accuracy=1e-6, heads=None),
        two_unit_heads,
        1e-6,
        oracle=labels,
        outside={name: make for name, make in NOT_SINGLE_HEAD.items() if name != "two heads"},
    ),
    Case(
        # A twentieth of the margin: the theorem's own eps_v needs millions of queries.
        "Membership-paper",
        us.learners.Membership(method="paper", accuracy=1.0, W_bound=2.0, margin=0.5, eps_v=0.02),
        lambda: us.models.SingleHead([[1.0, -0.5], [0.3, 0.8]], [0.6, -0.8]),
        0.5,
        oracle=labels,
    ),
]
