"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/explanations.md, "Explanations", statement.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What explanations are asked for, and what of their numbers counts."""

    # gradient
    typical_score: float = 1.0
    """Typical score of the main queries, standard deviation of the loudest head where there are several: the part of
    the gradient that shows W is then as large as the part that shows v, and 0.6 to 2 differ by less than twice."""
    pairs_a_round: int = 4
    """Pairs a round while the rank is not known: a rank r takes at most r + 5."""
    stated_over_noise: float = 6.0
    """Stated error over the one that an error of every number, declared or seen in its decimals, leaves in W q: it is a
    bound, so that a hundred heads of full and of low rank, of three and of four decimals, stay seven times below it."""
    missed_over_error: float = 2.0
    """Errors of all readings that W may miss its own by: right heads miss half of one at most, and a rank that noise
    cut short leaves out directions that are each below all errors."""
    low_rank_error: float = 4.0
    """Errors of a low-rank W over those of its columns: r dimensions seen through r + 1 to r + 4 tokens."""

    # heads
    wanted_spread: float = 0.7
    """Deviation of N times a token's gradient from the sum of all v_h, as a share of it, that a first look is made at:
    about the size of the scores."""
    saturated_spread: float = 3.0
    """The same deviation where some tokens have most of the attention."""
    few_token_median: float = 0.25
    """Median of N times a token's gradient, as a share of the sum of all v_h, below which few tokens have all
    attention: it is about 1 where scores are of ordinary size."""
    step_over_tokens: float = 0.6
    """Length of the step over that of tokens: exp(t) (1 + t) tells t above -1, beyond which a second solution
    begins."""
    tokens_to_spare: int = 2
    """Tokens beside 2 for each of 2 H dimensions: a square system would have no residual, and be worse conditioned."""
    parting_tries: int = 3
    """Sequences asked in search of one that parts the heads: a step along which two heads nearly agree does not."""
    references_tried: int = 5
    """Sequences tried as the one whose order of heads the others take."""
    same_value: float = 0.1
    """Values of a head in two sequences, relative to their size, that are taken for the same: they agree to rounding
    times a condition, or are those of mixed heads."""
    error_over_median: float = 30.0
    """Errors over the median from which on a query token is replaced: those for which heads nearly share a plane."""
    stated_over_rounding: float = 4.0
    """Stated error over the one that independent rounding of every number of an answer leaves: by gradients 80 targets
    of 1 to 4 heads, in float64 and float32, stay seven times below it; by maps 1,846 heads of full and of low rank, one
    and two, of all formats, 1.8 times."""
    error_left_to_values: float = 0.1
    """A relative error of W from here on is left to the values."""

    # maps
    tokens_of_a_map: int = 32
    """Tokens of a sequence: 31 score differences a head; more would save queries only where d^2 / (N - 1) exceeds H
    d."""
    misfit_over_error: float = 3.0
    """Errors, declared or seen in the decimals, that a misfit may reach: they are bounds, and the true head leaves
    less."""

    # attention
    exact_scores: float = 4.0
    """Standard deviation of score differences: a weight keeps its digits however small it is, so large scores are read
    as exactly as small ones, and heads that attend to different tokens tell their v apart."""
    rounded_scores: float = 0.7
    """The same where answers are rounded to decimals or to a short format: weights near 1/N lose least."""
    short_format: float = 1e-5
    """Rounding beyond which a number format is short: float16 and bfloat16 lose small weights, float32 does not."""

    # design
    tokens_shortened_by: float = 1 / 16
    """Tokens are made this much shorter where attention is saturated: scores, products of two tokens, fall by 256."""
    most_pilots: int = 5
    """Sequences that may be asked for the size of the scores: four times 256 shorter scores reach |W| = 4e9 at the
    first length, and a single reading finds any size below."""


EXPLAIN = Constants()
