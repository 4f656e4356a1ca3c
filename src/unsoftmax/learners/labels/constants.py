"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/membership.md, "One bit per bit".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What labels are asked for, how often, and when answers are believed."""

    # asking
    most_rounds: int = 4000
    """Rounds after which answers that flip are given up, unless their declared probability asks for fewer."""
    settled_over_expected: int = 5
    """Times the expected number of answers by which what flips as declared has settled, and some in hand."""
    rounds_in_hand: int = 100
    """Rounds beyond the expected number: short searches vary most."""

    # entries
    search_share: float = 0.5
    """Share of delta that the entries may use up."""
    open_brackets: float = 0.1
    """Share of the entries whose brackets may still be open when halving begins; waiting for the few largest would cost
    all others rounds."""
    most_doublings: int = 300
    """Doublings after which a number is given up as unbounded."""
    value_error: float = 1 / 32
    """Error of v beside the accuracy of W at typical logits, so that what it leaves in W is a small part."""
    sharpened_at_a_time: float = 2.0**-10
    """Bits by which v is sharpened at a time while no entry shows: ten."""

    # values
    harmless_share: float = 0.3
    """Share of the accuracy that one source of error may use up: errors of v, which is only d of d^2 + d numbers, so
    that its bits are cheap; rounding, before the accuracy counts as out of reach; and the step beside the ends of a
    bracket at which they are asked again, since a wrong label that moves the result by less does no harm."""
    bracket_share: float = 0.35
    """Share of the accuracy that must be left for the brackets."""

    # cross
    block_depths: tuple[float, ...] = (2.0**-6, 2.0**-12, 2.0**-18)
    """Depths, in units of the size of the entries, to which the block is read until `rank` pivots stand out: six bits
    more each time, for a closer look at the block costs less than weak pivots."""
    unknown_rank_depth: float = 2.0**-11
    """Depth of the first look at a block of unknown rank, in the same unit. Pivots above eight times it, 2^-8, show;
    that a block is too small shows there already, and weaker directions are read once it is not."""
    first_block: int = 8
    """Rows and columns of the first block, which doubles while it has full rank: smaller ones cost rounds, larger ones
    cost entries where the rank is low."""
    checked_entries: int = 24
    """Fresh entries, of two decisions each, that must lie where the cross puts them: a direction that was missed stays
    unseen only if it is small in all of them."""
    entry_off_over_error: float = 5.0
    """Times the size of its error by which a predicted entry may be off: among thousands none was beyond 3.4."""
    last_levels: int = 7
    """Levels asked a round once hardly an entry is left: rounds cost more than queries then."""
    bits_for_three_levels: int = 24
    """Accuracies of more bits get three levels a round: 2 bits + 40 rounds is the bar."""

    # consistency
    fewest_repeated: int = 8
    """Least number of sequences asked again: flips fixed by the sequence show where some of them, not all, are
    flipped."""
    most_repetitions: int = 16
    """Most times that each is asked again; rarer flips take more sequences, not more repetitions."""
    most_repeated: int = 64
    """Sequences beyond which flips are too rare to be looked for: 64 sequences of 16 answers, a thousand queries."""
    fixed_flips_share: float = 1 / 40
    """Share of delta with which independent flips may be taken for fixed ones."""
    shorter_again: float = 0.75
    """Ends of brackets are asked again with shorter tokens: the sequences are new, their labels independent."""
    boundary_roundings: float = 32.0
    """Units of rounding within which a label beside the boundary is anyone's guess."""

    # heads
    pairs_for_size: int = 32
    """Pairs of tokens whose weights show the size of W: with 70 % of them changed by less than a factor of 2, typical
    scores are near 1/2."""
    unmoved_share: float = 0.7
    """Share of these pairs below which scores count as large."""
    largest_score_product: float = 2.0**60
    """Scores are looked for while |x| |q| is between this and its inverse."""
    query_over_token: float = 2.0**-7
    """Length of the query token beside x at most: its own score then leaves some 3e-5 in a weight."""
    fewest_copies: int = 64
    """Copies below which the first table is too far from a sum of exponentials for its rank to be read."""
    bits_of_first_table: int = 20
    """Bits of the weights of the first table: a millionth, as the copies leave; sums that are right leave five times as
    much."""
    bits_near_first_token: int = 14
    """Bits of the weights near the first token: beside their distance of 0.1 they leave a thousandth."""
    absent_singular_value: float = 1e-4
    """Share of the first table's largest singular value that counts as none: ten times what the copies leave."""
    believed_residual: float = 1e-3
    """Relative residual of the first token's sums up to which they are believed."""
    second_off_first: float = 0.1
    """How far the second tokens are from the first, beside its length 1: scores change by so little that the fit that
    is right at the first token is near there."""
    flips_per_unknown: float = 1.2
    """Flips near the first token per unknown."""

    # flips
    ruler_copies: int = 1024
    """Copies of the ruler's token for flips that are fitted exactly: enough that f = 0 is crossed once."""
    first_bracket: float = 2.0**-7
    """First half width of a bracket around an expected flip, beside the sum of the heads' sizes there."""
    lost_flips: float = 0.05
    """Share of flips that may lie outside of every bracket; more of them speak against the fit that expected them."""
    feeble_head: float = 1e-3
    """Heads with a smaller share of the largest |W_h| are held to an error relative to this share: that of W = 0 is
    never small beside W."""
    binades_of_weights: int = 24
    """Powers of two between the largest and the smallest weight that is told from 0."""
    crowd: int = 16
    """Copies over the largest weight that is read: beyond n / 16 the scores of the copies themselves count."""

    # paper
    bytes_held_at_once: int = 2**25
    """Bytes of random vectors held at once, 32 MB: memory stays bounded, and a batch is long enough for fast
    arithmetic."""
    most_random_vectors: int = 10**12
    """Random vectors beyond which a run would never end: about a month at a microsecond each."""


LABELS = Constants()
