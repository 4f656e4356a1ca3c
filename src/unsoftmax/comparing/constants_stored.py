"""Constants of the fits of stored arrays that were measured or chosen, in the reading order of the map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What changed in any structure: when stored arrays are fitted, and when a fit is believed."""

    # stored
    unknowns: int = 1200
    """Numbers that are fitted together: the least squares then takes seconds."""
    stage_queries: int = 512
    """Most queries of a stage: scalar answers to a large array would take more than is worth asking."""
    asked_over_unknowns: float = 1.5
    """Numbers asked for over unknowns: sequences repeat themselves a little."""
    spare_sequences: int = 10
    """Sequences beyond these."""
    most_tokens: int = 12
    """Most tokens of a sequence: as many as vector answers tell apart, and few enough that weights stay of order
    one."""
    hypotheses: int = 6
    """Hypotheses of a stage that are fitted at most, of those that leave least to first order, the smallest first."""
    as_good: float = 3.0
    """Residual to first order over the least of all, up to which arrays count as leaving least: what a second, smaller
    change adds is below what is not linear in the first."""
    linear_left: float = 0.1
    """Part of the residual that a hypothesis may leave to first order to be fitted at all ..."""
    bent_left: float = 5.0
    """... and how much more for each unit of relative difference of the answers, which is what makes them not linear:
    right ones left up to twice that."""
    most_left: float = 0.5
    """Part that the one that leaves least may leave in any case: where answers have kinks, a right one left a
    quarter."""
    norm_spread: float = 0.7
    """Token norms vary by this (logarithm) around the usual one: a norm's own constants show only where norms
    differ."""

    # stored_fit
    step: float = 2.0**-24
    """Relative step of the differences: derivatives are right to seven digits, and a wrong digit costs an iteration."""
    seen: float = 1e-5
    """Singular values over the largest below which a direction is not followed: a direction that no answer shows has
    some 1e-7, the error of the differences, and following it once took an array a hundred times its size away."""
    least_deviation: float = 1e-12
    """Smallest deviation of an answer over the largest: sums that are zero in any order would outweigh all others."""
    kept_derivatives: float = 0.01
    """Part of the residual that an iteration may leave before the derivatives are taken anew."""
    stuck: float = 0.9
    """Part that it may leave with new derivatives: beyond it these arrays do not explain the answers."""
    rounding: float = 3.0
    """Standard deviations at which a residual is rounding and nothing is left to fit."""

    # stored_lean
    lean_numbers: int = 4096
    """Numbers of an array at most: its derivatives take as many evaluations of the reference, some ten seconds."""
    largest_rank: int = 4
    """Largest rank that is tried."""
    lean_over_unknowns: float = 4.0
    """Numbers asked for over the unknowns of the largest rank: factors are found from three times as many, not from
    two."""
    telling_numbers: float = 0.6
    """Part of the numbers of a vector answer that differ from each other's: weights of all heads are fewer than
    outputs."""
    lean_stuck: float = 0.7
    """Part of the residual that two steps must not leave: then these unknowns do not explain the answers."""
    reached: float = 0.5
    """Standard deviations at which nothing is left to fit: below what rounding leaves, so that steps end where they
    stop helping. At 3 a right change still left 1,000 on fresh sequences."""
    good: float = 30.0
    """Standard deviations at which a fit is handed on to verification; more unknowns are not tried then."""
    slow_factors: float = 0.95
    """Part of the residual that two steps of factors must not leave: far from a change steps are shortened to a
    quarter, and leave nine tenths each, up to seven times before the error is squared."""
    cuts: tuple[float, ...] = (1e-4, 1e-9)
    """Squared singular values over the largest below which a direction is not followed: first what is hardly seen,
    which steps from afar would follow without return; then only the freedom of factors, U G, G^-1 M. Those of true
    factors behind norms go down to 2e-6."""

    # stored_words
    unchanged: float = 64 * 2.0**-53
    """Relative change of an array that is none: rounding of the sum that makes the changed array."""
    clear: float = 30.0
    """Size of a change over its noise from which entries and ranks are told: what noise hides is below a thirtieth
    then."""
    derivative_share: float = 1e-6
    """Part of a change by which fits stray along directions that no answer shows, and part by which the effects of two
    entries on the answers differ where they are the same: derivatives are right to 1e-7."""
    sparse_entries: int = 8
    """Entries at most for a change to be called sparse."""


STORED = Constants()
