"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/attention-layer.md, "Behind a network".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What is asked of a whole block, and what of its answers counts."""

    # infinity
    endless_length: float = 2.0**60
    """Length at which a last token drowns all that is added to it in float64, and context tokens are on the norm's
    sphere whatever its eps."""
    frozen_length: float = 2.0**30
    """Length of context tokens that must lie on the norm's sphere: eps / 2^60 is below rounding for every eps in
    use."""
    log_sum: float = 1e-9
    """Log of the sum of e^answer up to which answers are log-probabilities, whose sum is 1 to rounding."""
    most_lost: float = 0.1
    """What is left, at most, of what attention writes where rounding and the rest in 1/lambda meet: the unit to the
    3/4, with three lengths."""
    raised_error: float = 1e5
    """Error of W over that of what attention writes, as measured: noise of 1e-10 left 1e-5 in W at d = 32, where heads
    could still be told apart, and of 1e-9 none that could."""
    no_inverse: float = 1e-6
    """Singular value of the readout, over the largest, below which it has no inverse: six digits would be lost."""

    # quiet
    difference_step: float = 2.0**-16
    """Step of differences at one length, as a share of the radius: its error, and rounding over it, are both 1e-5."""
    written: float = 1e-3
    """Singular value of a rough map, over the largest, below which a direction is not written: errors are 1e-5."""
    newton_steps: int = 2
    """Newton steps: from 1e-5 to 1e-10, and to rounding."""
    quiet_tokens: int = 6
    """Tokens that write nothing on either side of a table, at first; with the query token they need a dimension each:
    fewer leave no room for two sides."""

    # table
    tables_tried: int = 4
    """Tables read fairly well, of which the best are read in full: under a random query token one head of eight often
    looks at that token alone."""
    cells_to_spare: int = 6
    """Cells beyond the unknowns of one head: H, and two sides."""

    # fits
    cells_per_fit: int = 2
    """Cells before which a token is fitted, of 2 d numbers for H + G s unknowns."""
    cells_per_reading: int = 8
    """Cells beyond H before which a token is read; a root needs one, and the others average rounding: errors of what
    heads write were 1e-9 with three and 3e-10 with eight."""

    # whole
    score_of_shown_tokens: float = 0.7
    """Score, over the query token's own, that tokens are given which show what heads write: a head that hardly looks at
    them shows it badly, and one that looks at nothing else shows its denominators badly."""
    prescribed_length: float = 0.8
    """Length of the part of such a token that is prescribed, as a share of the radius; the rest is free."""


BLOCK = Constants()
