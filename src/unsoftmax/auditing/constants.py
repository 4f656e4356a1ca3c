"""Constants of this room that were measured or chosen, side by side, in the reading order of its map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What attacks of an audit spend, and from when on a defence is said to cost."""

    # advice
    dearer: float = 1.5
    """Factor of queries, over the undefended target, from which on a defence is said to cost the attacker queries."""
    slower: float = 2.0
    """Factor of hours, over the undefended target, from which on a defence is said to cost the attacker time."""

    # attacks
    askings: tuple[int, ...] = (1, 64)
    """Askings of each sequence, in turn until a copy is close: first noise is only declared, then an eighth of it is
    left; a digit more of the answers would be a hundred times the bill."""
    looks: int = 32
    """Askings of one sequence that measure the deviation: to an eighth, which `sure` has room for."""
    sure: float = 5.0
    """Deviations that are declared as the largest error: exceeded by one answer in two million."""

    # cells
    short_norm: float = 1.0
    """Token norm that learners of more than a head keep to behind a link: answers of models of order one are then about
    1, where a sigmoid is steep."""

    # ladder
    tops: tuple[int, ...] = (20, 5)
    """Tokens that services name: 20 is the most of the largest today, 5 what they once named."""

    # reading
    largest: int = 24
    """Dimension up to which the rung is climbed, and noise averaged: seconds, where other rungs take hundredths of
    one."""
    ratios: tuple[float, ...] = (1.5, 2.5, 4.0)
    """Fitted records per degree of freedom, in turn until a fit arrives: heads up to hot ones are within."""
    length: int = 8
    """Tokens per recorded sequence, where the domain allows them."""
    held_out: float = 0.15
    """Share of the records that judges the fit; it is on the bill."""
    starts: int = 40
    """Starts per fit: an audit has other rungs to climb."""

    # unknowns


AUDITING = Constants()
