"""From noisy values: tolerances, errors, and what an accuracy costs."""

from __future__ import annotations

import math

from unsoftmax.arguments import checked
from unsoftmax.theory.values import single_head_queries


@checked
def approximate_queries(d: int) -> int:
    """Theorem 6.1: as many as with exact answers."""
    return single_head_queries(d)


@checked
def approximate_tolerance(
    d: int,
    W_bound: float,
    margin: float,
    accuracy: float,
    value_accuracy: float | None = None,
    *,
    zeros: bool = True,
) -> float:
    """Theorem 6.1: the tolerance of an answer that suffices for ||W^ - W||_F <= accuracy, ||v^ - v|| <= value_accuracy.

    ||W||_F <= W_bound (at least 2), |v| <= 1, nonzero |v_i| >= margin. `zeros`: v may have zero entries, which halves
    it (an entry of W then takes two readings).
    """
    tolerance = min(margin / 2, margin * accuracy / (80 * W_bound**2 * d))
    if value_accuracy is not None:
        tolerance = min(tolerance, value_accuracy / math.sqrt(d))
    return tolerance / 2 if zeros else tolerance


@checked
def approximate_accuracy(d: int, W_bound: float, margin: float, tolerance: float, *, zeros: bool = True) -> float:
    """Theorem 6.1 read the other way: ||W^ - W||_F that answers within `tolerance` <= margin/2 guarantee."""
    return (2 if zeros else 1) * 80 * W_bound**2 * d * tolerance / margin


@checked
def norm_budget_error(d: int, tolerance: float, max_norm: float, value_norm: float) -> float:
    """Root mean square of ||W^ - W||_F for answers off by +-tolerance and tokens of norm max_norm, small logits.

    Two tokens at the limit R with cosines +-1/sqrt 3 to v: an answer's error becomes 4 tau / (2 R |v| / sqrt 3) in the
    logit, and solving for W multiplies by d / (R sqrt(2/3))^2. No margin on v, no bound on W.
    """
    return 3 * math.sqrt(3) * d * tolerance / (max_norm**3 * value_norm)


@checked
def averaging_blocks(d: int, tolerance: float, max_norm: float, value_norm: float, accuracy: float) -> float:
    """Blocks of d + d^2 queries after which independent noise of this deviation leaves ||W^ - W||_F <= accuracy.

    `norm_budget_error` over sqrt(blocks), times what a sum of d^2 squares spreads: while logits are small.
    """
    ratio = (1.1 + 3 / (d + 1)) * norm_budget_error(d, tolerance, max_norm, value_norm) / accuracy
    return float(max(1, math.ceil(ratio**2))) if ratio < 1e150 else math.inf


@checked
def averaging_queries(
    d: int, tolerance: float, max_norm: float, value_norm: float, accuracy: float, W_bound: float
) -> float:
    """Queries that suffice for every ||W||_F <= W_bound and |v| >= value_norm, whatever their directions.

    Scores up to s = W_bound max_norm^2 must be brought to order one: the error grows by 1.5 + (2 / sqrt d + 6 / d^3) s
    at most. To this come first looks: at v, and at W for each fourth of the length of x2 that is tried.
    """
    scores, share = W_bound * max_norm**2, (tolerance / (max_norm * value_norm)) ** 2
    small = (1.1 + 3 / (d + 1)) * norm_budget_error(d, tolerance, max_norm, value_norm) / accuracy
    blocks = (small * (1.5 + (2 / math.sqrt(d) + 6 / d**3) * scores)) ** 2
    looks = (40 / (d * d + d) + 4 + 300 * share) * (2 + math.log(1 + scores, 4))
    return (1.2 * blocks + looks) * approximate_queries(d) + 6400 * d * d * share
