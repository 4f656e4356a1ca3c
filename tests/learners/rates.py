"""Bars for what single draws decide. Last digits differ between processors, and other last digits are other draws."""

from __future__ import annotations

from collections.abc import Sequence

import unsoftmax as us
from unsoftmax.results.recovery import ERROR_OF_OTHERS, RELATIVE_ERROR


def few_above(values: Sequence[float], bar: float, share: float) -> None:
    """At most this share of the draws is beyond the bar: below one half, the median is within it too."""
    above = sorted(value for value in values if not value <= bar)
    assert len(above) <= share * len(values), f"{len(above)} of {len(values)} beyond {bar:g}: {above}"


def within_promises(recovery: us.Recovery, target: us.models.Model, oracle: us.oracles.Oracle, learner: object) -> None:
    """What every draw owes: an error below the stated one (the largest, where parts have errors of their own), and a
    bill below the largest foretold."""
    names = [claim.name for claim in recovery.certificate]
    assert RELATIVE_ERROR in names or ERROR_OF_OTHERS in names
    stated = max(c.bound for c in recovery.certificate if c.name == RELATIVE_ERROR or c.name.startswith("error of "))
    assert us.models.distance(recovery.model, target) <= stated
    upper = us.estimate(oracle, learner).upper
    assert upper is None or recovery.usage.billed <= upper
