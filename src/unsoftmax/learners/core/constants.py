"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/reading.md, "The scale".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What all rooms share: how loud is loud, how large answers should be, how often is often enough."""

    # base
    stated_over_rounding: float = 30.0
    """Stated error over the one that rounding of every reading leaves, or over the largest of a few random ones: errors
    that are not independent add up. A hundred random heads stay nine times below it, gradients five times."""
    unknown_error: float = 0.5
    """Relative error of a parameter from which on it is unknown, and a certificate that states it does not hold: half
    as large or half as large again, and 30 degrees from the direction found, is no knowledge. Trained layers in float32
    are stated at up to 0.4. (A norm that is proved, as `Approximate` states it, tells something as long as it excludes
    W = 0.)"""
    smallest_answer: float = 1e-100
    """Smallest size of answers, and of what is divided by, whose squares, and squares of their differences, are normal
    numbers of float64; the largest is its inverse."""

    # settling
    undecided: float = 2.0**-32
    """Distance from where rounding turns, beside the largest entry of a sequence, within which a processor may go
    either way (2e-10): numbers made of fits were up to 1e-10 apart. Few entries lie so near where float32 is the
    grid."""

    # readable
    entries_for_scale: int = 8
    """Entries whose typical logit sets the scale that is kept, and errors or misfits whose size is stated: their root
    mean square is known to a quarter, 1 / sqrt(2 * 8)."""
    typical_logit: float = 0.8
    """Root mean square of the logits aimed at where heads are read one by one: large beside rounding, and few of
    normally distributed ones exceed what is readable (7)."""
    pilot_entries: int = 6
    """Entries asked at each trial length: one that is nearly orthogonal to what is sought says little, the largest of
    six says its power of ten; few beside the main reading."""
    repairs: int = 12
    """Times that what may fail is tried: a draw that serves in half of the cases fails in one run of four thousand, and
    a token shortened by two or three each time is four thousand times shorter and more in the end."""
    draws: int = 6
    """Draws before a target is refused where one fails by an accident that is seldom: two heads at one token, at one
    angle, or with nearly equal scores."""
    shortened: float = 0.6
    """Factor by which tokens are shortened while a head is saturated, or others are heard: about half, so that scores
    do not fall far below what is readable."""
    no_digit: float = 45.0
    """Score by which a token falls behind that leaves no digit in float64, and a head is off: exp(-45) = 3e-20."""
    edge: float = 0.95
    """Length of the longest tokens as a share of a ball's radius: its edge, where scores and answers are largest over
    their noise, less room for steps and for rounding to a grid."""

    # law
    bent_over_open: float = 10.0
    """How far logits may miss an affine function of a token, over what the answers leave open of one. Two and their sum
    behind a norm: three errors make 3, layers as assumed leave 0.4 to 0.8; a soft cap of 50 on trained scores of
    deviation 1 to 3 leaves 60. All logits of a displacement in frozen contexts: of 4,200 readings of
    random stacks, with networks, steep scores, in float32, three left more (12, 12, 22), none of them at the next
    displacement; the same cap leaves 2e4, and 35 where it changes scores by 5e-6."""

    copies_of_all: int = 7
    """Copies of every token that must be answered as one of each, in sequences of two: a temperature by length moves
    from 2 tokens to 14, by 1.2 % where it is 1 + 0.001 n and by 2 % where it is 1 + 0.01 log n. Scores of order one
    then move answers by 1e-3 of their size."""

    # noise
    loud: float = 1000.0
    """Units of rounding or noise from which on a gap, a misfit or a singular value is no noise: three digits for a
    target's own sums and the solves in between."""
    audible: float = 100.0
    """Units of rounding or noise that a change must stand out by to be one: two digits for the sums inside the
    target."""
    felt: float = 1e4
    """Units of noise, relative to the answers, beyond which two answers differ: room for the sums of a network, far
    below what order, a residual or a bias changes."""
    directions_of_sums: int = 3
    """Directions whose sums are asked: the unknowns that are fitted to the answers. One or two would leave rounding
    that is as linear as the answers unseen."""
    sums_at_each_length: int = 15
    """Sums asked at each length; `sums_at_each_length` - `directions_of_sums` = 12 residuals tell a deviation to a
    fifth, 1 / sqrt(2 * 12)."""
    short_over_long_tokens: float = 2.0**-6
    """Length of the short tokens over the long ones: a relative error shrinks 64 times between them and an absolute one
    does not, far beyond the factor `clearly_other_noise` by which estimates may differ."""
    deviations_of_a_radius: float = 3.0
    """A measured radius is about this many deviations; see `sigmas`."""
    clearly_other_noise: float = 3.0
    """Two estimates from a dozen residuals each differ by less than this unless the noise itself differs."""
    roundings_granted: float = 4.0
    """Units of rounding granted to a target beside its declared tolerance: sums in another order. Right heads of
    float32 and float16 leave 0.2 of it."""
    misfit_of_exact_answers: float = 1e-11
    """Misfit, as a share of the answers, above which an oracle of exact answers is noisy. It is 5e4 units of rounding,
    for a target may lose digits in long sums; smaller noise is left to verification."""
    misfit_behind_link: float = 1e-5
    """The same behind a link: undoing it stretches the rounding of a saturated answer, and a float32 answer is no
    longer known by its format."""
    misfit_of_another_class: float = 0.05
    """Misfit, as a share of the answers, above which they are not noisy but not linear: another class, which the
    learner's own checks refuse."""
    rounding_that_is_noise: float = 1e-4
    """Rounding unit above which a number format is treated as noise: float16's."""
    least_step_that_overflows: float = 1e-30
    """Smallest step of a number format above which it has a small range too and long tokens could overflow it:
    float16's is 6e-8, those of float32 and bfloat16 are below 1e-38."""
    largest_short_answer: float = 2.0**12
    """Size of answers in float16 that leaves room for the largest of many (it ends at 2^16); other formats do not
    end."""

    # pair_logits
    steep_logit: float = 3.0
    """Largest |logit| taken as it comes: further out, asking again closer to 0 is the better use of a query."""
    saturated_weight: float = 1e-3
    """Weights nearer than this to 0 or 1 are not read, or read again with shorter tokens: digits of W are lost as 1 /
    (alpha (1 - alpha)), three of them."""
    most_copies: int = 63
    """Copies that bring a steep logit back: log 63 = 4.1."""
    blurred_share: float = 0.05
    """Share of the interval between two tokens that noise may cover: beyond it saturated answers look like others."""

    # cross
    to_spare: int = 4
    """Readings beyond as many as there are unknowns where these are random, so that a few are poor: they check what was
    found as `checks` does, and keep the condition of what is solved."""
    checks: int = 2
    """Readings beyond as many as there are unknowns that must agree before what was found is believed, and whose misfit
    is its noise: entries beyond a rank, tokens beyond an affine map, equations beyond a column. Two, since one may be
    right by chance."""
    columns_beyond_rank: int = 1
    """Columns and pivot rows read beyond the rank: one more softens a badly placed cross."""

    # links
    sequences_mirrored_at_once: int = 4096
    """Sequences mirrored at once, so that lazy designs stay lazy."""

    # costs: what forecasts suppose
    most_pilots: int = 200
    """Queries that measuring the noise, the wiring and the size of W takes at most; 60 to 100 are seen."""
    heads_supposed: int = 16
    """Heads that an upper end supposes where their number is to be found: more than single outputs of trained layers
    have at the usual widths up to 1024."""
    neurons_per_dimension: int = 4
    """Neurons per dimension that an upper end supposes, as in a Transformer's feed-forward part."""
    fewest_neurons: int = 16
    """Neurons that it supposes at least: small networks are often wider than four times their input."""


CORE = Constants()
