"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/multi-head.md, "Generic heads", arcs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What several heads are asked for: where they saturate, how they are read one by one, and when a reading
    counts."""

    # multi_head
    vanishing_score: float = 1e-10
    """Largest score that tokens inside a norm limit give a fitted W which is taken for 0; noise beside the head's
    values raises it."""
    longest_on_a_line: float = 16.0
    """Largest token used in one dimension, whatever the norm limit: there every score is w x b, and tokens much longer
    would saturate all of them."""
    polish_per_pair: float = 2.5
    """Queries of the polish per pair of heads and dimension: what isolated readings leave uncertain is how the heads
    share an answer, H (H - 1) d numbers."""
    polish_per_unknown: float = 1.6
    """Queries of the polish per unknown where a tolerance is declared: more than one each, so that noise is
    averaged."""
    verification_reserve: int = 80
    """Queries kept back from the polish for the verification, beside 6 for every head: single tokens, random sequences
    of all lengths, 32 ties and silence are 68."""

    # ground
    least_stretch: float = 16.0
    """Least factor by which z is sent longer and b shorter: b is then 256 times smaller beside z at the same scores. A
    declared tolerance raises it, since longer z outscale additive noise."""
    linear_gap: float = 1e-3
    """Gap of a single token's answer to x.V, relative to its size, beyond which it is not linear, or values cancel:
    above the rounding of float16, 5e-4, and of finer formats."""
    query_lengths: tuple[float, ...] = (1.0, 0.1, 0.01)
    """Lengths of query tokens beside the others' at which the order of tokens is tried: scores of many sizes."""

    # circle
    on_a_line: float = 5e3
    """Answers within this many units of noise of a line lie on it; further off they are part of a jump."""
    growth: float = 8.0
    """Factor by which z grows per round until all heads are saturated: a power of two, which rounds nothing."""
    deepest: float = 2.0**40
    """Factor of z at which what doubling the copies shows must still be the same before it is a head with W = 0: a weak
    head saturates on the way."""
    query_shortened: float = 2.0**-12
    """Factor by which query tokens are shortened where copies show nothing, since all heads may be saturated from the
    start."""
    most_shortenings: int = 8
    """Most such shortenings, 2^-96 in all, before there is no head that scores."""
    size_directions: int = 12
    """Most orthogonal directions that show the size of the answers where the values cancel on single tokens."""
    sharpened: float = 32.0
    """Factor by which z grows once the heads are saturated, and each time that several turn together: jumps are
    narrower by it."""
    deeper: float = 2.0**10
    """Arcs, and the head with W = 0, are read at a z longer than the circle's by this factor: the tails of the jumps
    fall exponentially with it, so that other heads are saturated in almost every direction; a power of two rounds
    nothing."""

    # discovery
    most_pieces: int = 200
    """Linear pieces on the half circle beyond which the answers are those of no sum of heads: every head adds one
    piece."""
    most_sharpenings: int = 3
    """How often a jump of several heads is sharpened, 3e4 times in all, before it is one that does not come apart."""
    mixed_points: int = 4
    """Points in the middle of a jump that are not one head's before it is sharpened: one or two may lie in the tail of
    another jump."""
    shift_gap: float = 1e-7
    """Gap between the shift of the logit when the copies double and log 2 that is none, beside what the answers' error
    makes of it: half the digits of float64."""
    tail: float = 0.02
    """A share this close to 0 or 1 is a tail: there any mixture of heads shifts by log 2, so it proves nothing."""
    clear: float = 20.0
    """Errors of the answer, over the jump, that a share must be away from 0 and 1 for the shift of its logit to be
    read."""
    tellable: float = 0.3
    """Distance of a share from 0 and 1 that is asked for when noise hides what a jump is: no share and the one with
    twice the copies are both farther than sqrt 2 - 1 = 0.41 away, and 0.3 leaves those from 0.46 to 0.7."""
    tail_end: float = 4.0
    """Tolerances from a line within which doubling the copies may not show."""

    # isolation
    readable: float = 6.0
    """Largest |t| taken as it comes, a share of 0.25 %: beyond, z is shortened and the entry asked again."""
    pilot_entries: int = 5
    """Entries asked for each trial length of z: an odd number, most of which must be readable."""
    longest: float = 2.0**200
    """Length of z at which what shows is taken for scores, however little: its square is still a number of float64."""
    dependent: float = 1e-4
    """Smallest singular value of the normalised values below which heads are not read one by one but fitted: isolating
    would lose four digits."""
    drowning: float = 2.0**-5
    """Lengths of z, beside query tokens of length 1, below which query tokens are shortened instead."""

    # ranks
    rows_tested: int = 6
    """Rows in which a predicted column of coarse answers is tested: a direction of W that is 10 times the errors stays
    below them in all of six with probability 1e-6, in two with 1 %."""
    predicted: float = 1.0
    """Root mean square, in those rows, of what a column leaves of its prediction, over what errors of all entries may
    leave: of 386 columns in float32 past the rank half left 0.26 and the most 0.98, for the error that is reckoned is a
    bound of every sum. Of 3938 before it 99 % left 10 and more."""

    # checks
    coarse_checks: int = 3
    """Checks of a column of coarse answers: one alone may hardly see a second solution; of 17 that were checked three
    times the best hidden ones showed by twice what errors leave."""
    shown: float = 2.0
    """Gap of a check over what errors of the answers leave there, root mean square, that is no error: of 1800 right
    columns in float32 99 % left 0.8 and the most 1.5; half of the wrong ones 150 and more."""
    worse: float = 8.0
    """Error of a column over the median of all columns from which on it is asked again with other tokens: 1 % of them,
    whose equations are nearly singular. They spread over the whole of W where its rank is less than full."""

    # three_tokens
    second_over_first: float = 32.0
    """Length of the second token's z beside the first's: the head's answer is then mostly its share of the second,
    which the first takes away."""
    second_lengthened: float = 4.0
    """Factor by which the second z is lengthened, and turned, where a column did not come out: a second solution has
    less room."""
    coarse_noise: float = 1e-11
    """Relative noise from which on answers lose in a long second z what it gains."""
    first_length: float = 0.5
    """Length of the first z in units of the isolated head's: bound directions may score more than the free ones it was
    set by."""
    first_readable: float = 3.5
    """Largest |score| of the first token that is read as it is, a share of 3 % between two; beyond, it is shortened."""
    first_timid: float = 0.4
    """|score| of a shortened first token below which it is lengthened again: an error of the answer counts 1 / |z1|
    times."""
    singular_step: float = 1e100
    """Entries of a step beyond which it says only that the equations are singular; products of it would overflow."""
    solved: float = 1e-9
    """Residual per equation, relative to the tokens' length and all values, at which Newton's method has arrived;
    coarser answers have 1e4 units of their noise."""
    longest_step: float = 3.0
    """Most that a Newton step may change a score: beyond, shares saturate and their slopes say nothing about where to
    go."""

    # lifted
    foreign_entry: float = 1e-5
    """Share of the largest entry of W, or of v, that may stand where the lift has none: well above what turning back
    leaves of rounding, far below another class."""
    bases_tried: int = 200
    """Random bases tried until the first query token has a fair share of the key offset; they cost no query."""
    flat_share: float = 1e-12
    """Share of the offset below which a W is what rounding leaves of 0."""
    lifted_share: tuple[float, ...] = 0.7, 2.0
    """Least and largest size of the lifted coordinate of a query token beside the others: neither the offset nor W then
    drowns in the other."""

    # assembly
    most_sweeps: int = 40
    """Most sweeps in which all heads are solved again with each other's leaks taken off; leaks that have not settled by
    then do not."""
    leak: float = 4.0
    """Products z.v_g beyond this many rounding units of z.v_h count as leaks of head g into an isolated answer."""

    # reading
    explained: float = 1e-10
    """Gap, relative to the size of the answers, up to which a check is passed once the values are known to the last
    digits, however small the others are; and gap of the interpolation at the ratios to spare that is none: ill-posed
    sums of poles lose some digits of float64, and coarser answers have 1e3 units of their noise."""
    column_apart: float = 1e3
    """A gap above this many times the median of all columns is in doubt: they share the values' errors."""
    starts: int = 20
    """Random starts from which a column in doubt is solved once more before it is asked again: they cost no query."""
    start_size: float = 8.0
    """Largest size of their bound parts over that of the free ones, and largest inverse: starts of one size alone met
    the second solution again in 3 of 160 trained targets."""
    turns: int = 8
    """Times that a column of coarse answers is asked before the best of its answers are kept."""
    amplified: float = 1e4
    """What a check may be off in units of the values' error, while they are as the arcs show them: long tokens and
    leaks amplify it."""

    # saturation
    confirmed: float = 1e-4
    """Values read again with one head alone must agree with those the jumps showed to this share; a wider gap is taken
    for wrong scores."""
    confirmed_errors: float = 10.0
    """The same in errors of those values, where these are larger: of 29 targets in float32 values were off by up to
    4."""
    small_fit: int = 450
    """Unknowns up to which a fit is tried where isolation did not come out: a last resort, which should not take
    long."""
    saturated: float = 40.0
    """Score, beyond the log of the values' ratio, at which a head is on or off: e^-40 = 4e-18 is below float64
    rounding."""
    parallel: float = 1e-6
    """Smallest singular value of the normalised key directions at which they can still be switched one by one: below, z
    would be a million times longer."""
    step_off_plane: float = 0.04
    """Length of a step out of the plane next to the distance of the nearest jump: long steps may cross a hyperplane."""
    silent_pairs: int = 3
    """Pairs asked where z is orthogonal to all values found: one at the typical length, one 4 and one 16 times as long,
    for heads that are weaker."""
    faint_draws: int = 3
    """Times `CORE.draws` planes that are tried where noise hides what their jumps are: one in ten planes has such a
    jump, and one in three where a value is ten times smaller than the others."""
    discoveries: int = 3
    """Times that values of coarse answers are looked for anew where reading them again contradicts them: in 2 of 60
    float32 targets noise had hidden a head."""
    first_values: float = 1e-3
    """Relative error that arcs may leave of a coarse value before another plane is tried: half of them leave 3e-5, and
    narrow arcs up to 1e-2."""
    arc_points: float = 0.7
    """Place of the two points that read the arc's line in the plane, in halves of the arc from its middle: far apart
    for a well-posed line, and off the tails of the jumps at its ends."""
    arc_clear: float = 4e3
    """Score by which an arc's middle is away from its ends, however narrow it is: tails of a jump are no part of a
    line."""

    # rational
    rational_heads: int = 4
    """Most heads that are counted: the poles of more are lost in float64, where every head takes two more ratios of one
    ill-posed interpolation."""
    rational_trials: int = 4
    """Pairs at which heads are counted; all but one of them must agree, since two poles may nearly coincide at one."""
    rational_flat: float = 1e-11
    """Largest scores, at the length of z that was used, that are taken for 0."""


HEADS = Constants()
