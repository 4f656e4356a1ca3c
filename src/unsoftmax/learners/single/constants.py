"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/single-head.md, "Theorem 4.1", method.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What one head is asked for, and what of its answers counts."""

    # low_rank, approximate, orthogonal_heads
    largest_gram: int = 20_000
    """Measurements that the nuclear-norm program takes at most: it keeps their m x m Gram matrix, 3.2 GB at 20 000."""
    harmless_noise: float = 1e-6
    """Noise, as a share of the answers, below which held-out measurements and verification judge the result."""
    typical_blocks: int = 64
    """How many times the blocks of a small W the upper end of averaging supposes; the cost grows with the sixth power
    of scores that saturate."""
    half_logit: float = 0.001
    """Size of half a logit in the second differences: its sixth power is what three step lengths leave."""

    # measure
    fresh_pairs: int = 24
    """Fresh pairs whose gaps judge what was learned: so many tell a root mean square to a seventh, 1 / sqrt(2 * 24)."""
    readable: float = 7.0
    """Largest |t| taken as it comes: sigma' there is 1e-3, so three digits are lost on the largest entries at most."""
    typical_logit: float = 0.4
    """Root mean square of the main logits. At most (0.4/7)^2 = 0.33 % of them can then exceed 7 and need repair,
    whatever W is: their mean square is fixed by ||W||_F."""
    nothing: float = 1e-6
    """A bound on ||W||_F that says W is nothing: below it uniform attention is the answer."""
    anything: float = 1.0
    """A bound on ||W^ - W||_F from which on scores of tokens of norm 1 may be off by 1; beside a W no larger it says
    nothing. A smaller one says that attention is uniform at such tokens, as far as it is."""
    refined_pairs: int = 16
    """Random pairs in the last look, whose root mean square is the size that tokens are scaled by: so many tell it to
    about a fifth, 1 / sqrt(2 * 16)."""
    most_repairs: int = 256
    """Repairs allowed beside half of all entries: a head with few entries may need each of them several times."""
    visible: float = 1e-2
    """Typical |t| that is told from rounding also in float32."""
    longest_pair: float = 2.0**80
    """Largest |a| |b| tried where nothing shows: far from overflow, and W below 2^-80 is no W."""

    # affine
    typical_offset: float = 1.5
    """Logit that c makes in the readings of c, as a root mean square: far above noise, far from saturation."""
    longest_offset: float = 2.0**40
    """Tokens are lengthened up to this where c does not show; products of two stay far from overflow."""
    stated_over_rounding: float = 300.0
    """Stated error of W over eps sqrt(d), at tokens as long as wished: two to three digits for the solves in between
    and for c, which is read before W and enters every logit."""

    # cross
    candidates: int = 2
    """Columns tested at once before one is added: the second guards against a direction that happens to lie in the span
    of those before, at the price of its test."""
    confirmations: int = 6
    """Fresh columns more that must add nothing before the rank is believed; a direction of W is overlooked only if it
    is orthogonal to all of them, up to noise."""
    noise_checks: int = 4
    """Fresh directions of the first token that tell noise from a target that is not linear in it."""
    decidable: float = 0.3
    """Noise above this share of the scores leaves the rank undecided."""
    visible_value: float = 0.2
    """Part of the unit v that a first token must meet: outside the span of the columns, for a.v to be large enough to
    read scores there; and for random pairs, which are drawn again where a.v is smaller, since their logits would lose
    digits."""

    # LowRank, random pairs
    program_accuracy: float = 1e-7
    """First-order methods reach this in bearable time; Gauss-Newton does the rest."""
    explained: float = 1e-6
    """Gap of held-out measurements that a right solution shows at most without noise."""
    measurable: float = 0.2
    """A gap beyond this is never noise that W would survive."""

    # token_pairs
    leading_digit: float = 5.0
    """Rounding to digits depends on the leading one, by a factor of up to ten between answers; half of it is met."""
    pairs_over_singles: float = 8.0
    """How much worse than single tokens pairs may fare before the class, not the arithmetic inside, is in doubt."""

    # noisy_cross
    noisy_confirmations: int = 10
    """Columns that the span must explain before the rank is believed. More would lower the size of what they all
    overlook, which is stated, at rank + 1 queries each."""
    significant: float = 4.0
    """Deviations by which a column must leave the span of those before to count as new."""

    # averaging
    saturated: float = 0.06
    """Mean of (alpha - 1/2)^2 above which logits are too large on the whole (their root mean square is then about
    1.3)."""
    look_share: int = 8
    """A first look takes this part of what is planned."""
    rough: float = 0.7
    """Errors of the logits below which a plan is held against the budget as a whole: it is right to some ten
    percent."""
    stages: int = 24
    """Most plans: one doubles what was seen or is asked whole, so only errors that do not average out come this far."""
    sought: int = 256
    """One-token queries, over those planned, after which v is not looked for any more: W would take far more."""
    tried: int = 400
    """Answers of a design whose information is computed before it is asked."""
    ahead: float = 1.04
    """Blocks are planned for this share of the wanted error, so that they mostly suffice."""
    most_queries: int = 10**8
    """Beyond this a run would take days, and gigabytes to hold its answers."""


SINGLE = Constants()
