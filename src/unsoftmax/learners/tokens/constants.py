"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/token-access.md, "Token access", method.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What a head over token ids is asked for, and what of its answers counts."""

    # token_head
    most_copies: int = 64
    """Most repetitions of a token: log 64 = 4.2 of reach."""
    swapped: int = 12
    """Sequences asked in two orders, to see whether position matters."""
    most_pilots: int = 400
    """Queries that the order of tokens, the noise and a first look at the rank take at most; about 80 are seen."""
    largest_rank_supposed: int = 64
    """Rank of the scores that an upper end supposes: the width of a trained head."""
    noisy_share: float = 0.02
    """Answers that should agree and differ by less than this part of the values' range are called noisy, not
    positional."""
    tokens_asked_doubled: int = 16
    """Tokens i asked as [i, i], which answers the value of i unless positions change values. A constant shows in each,
    and what differs by token in most of them."""
    block_for_offset: int = 48
    """Rows and columns of the block of pairs whose rank tells the offset: scores of rank up to 45 leave three singular
    values to vanish together."""

    # gaps
    digits_lost: float = 2.0e4
    """Loss accepted in one reading (e^10): entries that would lose more are asked again beside a better base."""
    worthless_radius: float = 4.0
    """Radius at which a gap says nothing; an unread entry is asked again only if less than a quarter of it is promised,
    and expected to lie as much further than the visible bound."""
    passes: int = 4
    """Each pass reads beside tokens that the one before has read."""

    # cross
    cross_tests: int = 16
    """Fresh entries that test a cross; where hardly more are left, all of them do."""
    helper_levels: int = 16
    """Levels from which helpers are taken: one is then near to every gap."""
    least_visible_gap: float = 8.0
    """Gaps down to -8 are read without losing more than the digits a reading may lose."""
    near_best_pivot: float = 0.3
    """Threshold pivoting: among candidates with at least a third of the largest residual the most readable is taken."""

    # completion
    equations_considered: int = 96
    """Tokens considered as equations: so many of the most visible and as many random ones. It bounds the pivoted QR,
    and is many times the usual rank."""
    rounds: int = 3
    """Each round reads what the one before made readable."""
    radius_over_goal: float = 64.0
    """Radii of entries, in units of the goal, above which an entry is read elsewhere."""
    excess_over_radius: float = 2.0**-40
    """Excess over a stated radius that is rounding of the solve."""

    # report
    hidden_key: float = -15.0
    """A key certainly this far below the query token changes answers by less than 1e-6 of the values' range."""
    report_columns: int = 64
    """Columns looked at together: memory stays at 64 numbers a token."""
    ids_named: int = 5
    """Ids named in a note; the rest are counted."""


TOKEN_HEAD = Constants()
