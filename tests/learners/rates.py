"""Bars for what single draws decide. Last digits differ between processors, and other last digits are other draws."""

from __future__ import annotations

from collections.abc import Sequence

import unsoftmax as us
from unsoftmax.learners.core.base import RELATIVE_ERROR


def few_above(values: Sequence[float], bar: float, share: float) -> None:
    """At most this share of the draws is beyond the bar: below one half, the median is within it too."""
    above = sorted(value for value in values if not value <= bar)
    assert len(above) <= share * len(values), f"{len(above)} of {len(values)} beyond {bar:g}: {above}"


def within_promises(recovery: us.Recovery, target: us.models.Model, oracle: us.oracles.Oracle, learner: object) -> None:
    """What every draw owes: an error below the stated one, and a bill below the largest foretold."""
    stated = max(claim.bound for claim in recovery.certificate if claim.name == RELATIVE_ERROR)
    assert us.models.distance(recovery.model, target) <= stated
    upper = us.estimate(oracle, learner).upper
    assert upper is None or recovery.usage.billed <= upper
