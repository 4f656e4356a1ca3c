"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/output-layer.md, "The output layer", statement.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What prompts are asked, and which rows of logits are noise."""

    # output_layer
    widest_supposed: int = 8192
    """Hidden width up to which the cost is stated: wider ones than those of the largest models served."""
    prompts_of_a_round: int = 256
    """Prompts of a round once the width is known: only their coordinates are kept, so the round is what is in
    memory."""
    off_ellipsoid: float = 1e-3
    """Largest difference from 1 of (z - c)'M(z - c) that still is an ellipsoid: eps = 1e-5 inside a norm moves states
    of mean square 1e-2 and more by less; hidden states without a norm are off by their spread, near 1."""

    # reading
    first_tokens: int = 64
    """Tokens looked at first where they must be chosen, and prompts asked at first for their likeliest tokens; twice as
    many whenever the width is not below them."""
    prompt_length: int = 8
    """Ids in a prompt: V^8 prompts are never drawn twice, and a service bills by the token."""

    # width
    prompts_of_noise: int = 16
    """Prompts a round, and rows beyond the width that must be noise: a width d takes at most d + 31 prompts."""
    columns_over_rows: int = 3
    """Columns looked at for each row when only the rank is asked for: a rank is the same in three times as many
    columns."""
    noise_over_declared: float = 4.0
    """Noise over what was declared or seen in decimals: an entry's standard deviation is below its largest error."""
    left_by_a_cap: float = 1e-7
    """Part of the largest answer that a cap known to its own digits leaves: caps are found to 1e-9 and better, and
    other functions in the place of a cap left a thousandth and more."""
    floor_apart: float = 4.0
    """What shows that the smallest answer stands in for numbers that are not shown (a floor, a mask, the logarithm of
    an underflow): this many times as many rows have it as have the next one, or it lies below the next by this many
    times the range of all others. Gaussian logits of 16 prompts stayed at 1 and 0.6, with two decimals or in float16 at
    2 and 0.6."""
    new_part_of_a_row: float = 0.5
    """Part of a new row that lies outside the rows before it, below which the rank is worth computing."""
    explained_by_curves: float = 0.02
    """Most of the rest that squares and cubes of logits may explain: of independent noise in 48 x 160 entries they
    explain 2 / 7680, and of float16 rounding, which grows with the entries, 0.1 %; of a cap five times beyond the
    logits, 60 %."""
    most_doublings: int = 5
    """2048 prompts at most: a block grows slower than the prompts, so one that is too narrow then stays so."""


OUTPUT = Constants()
