"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/kernels.md, "Other kernels than the exponential", method.
"""

from __future__ import annotations

from dataclasses import dataclass

from unsoftmax.theory.kernels import TABLE


@dataclass(frozen=True)
class Constants:
    """What a kernel is asked for, and what of its answers counts."""

    # kernel_head
    typical_log_kernel: float = 0.2
    """Typical |log kappa(t) / kappa(0)| of an entry: a third of the 0.69 at which a sigmoid ends on its upper side, so
    few flat entries are asked again (a hundredth at d = 32; at 0.3 a tenth in two heads of twenty, as the pilot is
    small); every kernel of the catalogue is steep there on both sides."""
    loud_log_kernel: float = 1e-3
    """Reading of log kappa that a score leaves beyond doubt: rounding of float32 leaves 1e-6."""
    flat_slope: float = 0.05
    """Slope of log kappa below which an entry is asked again, closer to 0: it loses a digit and more there."""
    corrections: int = 3
    """Times the score of the second token, e^2 b'Wb, is put in: each takes off a factor of e^2."""
    largest_score: float = 60.0
    """Scores beyond this are not looked for: kernels of the catalogue are flat or beyond the digits of a weight by
    then."""
    tokens_over_query: tuple[float, ...] = (2.0**26, 2.0**7)
    """Lengths of tokens beside the query token, as far as the domain allows: at the longer what the query token answers
    is nothing, at the shorter 1e-4, and temperatures that grow with the token still leave scores."""
    stretches: tuple[float, ...] = (1.0, 8.0, 64.0)
    """c of [c x ; q / c]."""
    answer_off_class: float = 1e-5
    """Share of an answer by which it may change, or be answered across v, beside what the query token adds: targets of
    another class that were tried change by 1e-3 or more."""

    # first_look
    folds: tuple[float, ...] = (3.0, 0.5)
    """k of [x ; -k x ; q]: of the two tokens beside q one has a positive score, so weights never add up to 0; positive
    kernels answer 1 - k, which differ by -4, and no power of the score does."""
    most_looks: int = 4
    """Queries of the first look, at most: two with short tokens, and two with long ones where these do not show a
    positive kernel."""
    ratio_off: float = 0.1
    """Gap from the ratio of both answers of positive kernels that noise or scores may leave: the nearest power, the
    square of the score, is 0.29 away."""
    short_token: float = 2.0**-20
    """Length of x, for scores below 2^-52 |W|: positive kernels are flat there; squares of scores stay within
    float32."""
    short_query: float = 2.0**-44
    """Length of q, 2^-24 of x: what q.v adds to x.v moves the ratio by `ratio_off` where x is that close to orthogonal
    to v, in one draw of 10^5; at 2^-12 it was one in sixty. Scores of 2^-64 have squares within float32, or answers of
    0."""
    long_token: float = 2.0**30
    """Factor of x where short tokens show no positive kernel: answers of a few decimals are 0 or steps there. The query
    token is shortened by as much, so that scores stay as they are."""

    # reading
    second_token: float = 2.0**-26
    """e: its square, the score of the second token over b'Wb, is below the rounding of float64."""
    least_norm_limit: float = 1e4
    """Least norm limit: e = 1e-3 then leaves a score of 1e-6 to the second token, which is taken into account."""
    repeated_token_off: float = 1e-6
    """Gap from 1, 2 or 4/3 by which a token asked twice may be answered."""

    # kernels
    table_points: int = TABLE - 2
    """Points of the table: Chebyshev series of softplus and sigmoid on scores up to 4 end there at rounding."""
    table_scores: float = 3.0
    """Scores of the table, in the units of its own slope at 0: kernels differ by then, and sigmoid still rises."""
    off_catalogue: float = 300.0
    """Roundings by which a table may miss a kernel of the catalogue: twenty heads of each stayed below 40."""
    odd_over_even_part: float = 1e-3
    """Odd part of the logarithm of a kernel near 0, beside its even part, below which it is not monotone there: of a
    monotone one the odd part is the larger."""
    last_coefficients: float = 1e-7
    """Last coefficients of a table that is taken as it is: beyond, the kernel has a kink, and a series does not show
    it."""

    # powers
    ratios_read: tuple[float, ...] = (2.0**-16, 2.0**14)
    """Ratios of weights that keep 1e-11 and better: outside, the reference token is rescaled and asked again."""
    fold_off_power: float = 1e-3
    """Gap of a fold from what a power answers: kinds are 20 % apart, and the own score of the query token leaves
    2^-52."""

    # degree
    degrees: tuple[int, ...] = (1, 2, 3, 4)
    """Degrees that are looked for."""


KERNEL = Constants()
