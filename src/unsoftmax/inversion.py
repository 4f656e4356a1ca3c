"""INVERT: from answers to logits, with the error that answer noise leaves in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Logits:
    """`t`: logits, NaN where the answer is outside the open interval; `gain`: dt/dy = 1/(|a.v| alpha (1 - alpha))."""

    t: Array
    gain: Array


def logits(y: Array, av: Array, bv: Array) -> Logits:
    """Solve y = bv + sigma(t) av for t, elementwise (broadcasting).

    The two ends are computed separately, log(y - bv) - log(av + bv - y), so neither cancels near 0 or 1.
    """
    low = (y - bv) / av
    high = (av + bv - y) / av
    inside = (low > 0) & (high > 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        t = np.where(inside, np.log(low) - np.log(high), np.nan)
        gain = np.where(inside, 1 / (np.abs(av) * low * high), np.inf)
    return Logits(t, gain)
