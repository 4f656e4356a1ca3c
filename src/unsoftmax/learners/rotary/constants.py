"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What layers with positions are asked for; what hangs on rounding is in `limits`."""

    # kind
    same_roundings: float = 1e6
    """Answers that differ by fewer roundings than this are equal: what is looked for changes them by a thousandth."""
    farthest_window: int = 1024
    """Distance up to which windows are looked for."""
    abrupt: float = 1e3
    """Change of the answer by the last token that is seen, over what is no change, from which on a window ends there:
    where slopes fade tokens out, it is e^slope at most, and slopes in use are 1/2 and less."""
    shorter_by: int = 8
    """Binary digits by which tokens are shortened where strong scores may hide what is looked for."""
    shorter_lengths: int = 3
    """Lengths that are asked so, down to 2^-24: behind an RMSNorm of eps from 1e-5 down to 1e-12 two of them or one are
    seen shorter than its ball, by factors between 1e-5 and 0.5; scores of 30 to 1e5 are then between 1e-4 and 10."""
    shorter_copies: int = 14
    """The same once for copies of a token, whose scores go with the square of their length: behind an RMSNorm of eps
    from 1e-5 down to 1e-8 they are 3e-4 to 0.3 of what they were."""
    even_share: float = 1.5
    """By how much the last token of a window may change the answer beside its share of what all tokens change, up or
    down: before x = 0 without a bias it is that share. Two tokens that only together are told from noise are twice."""
    uneven_share: float = 10.0
    """The same at most where a bias of queries weighs distances, or slopes fade tokens out: at a distance that has all
    the weight it would be as many times as there are tokens."""
    halved_ratio: int = 4
    """Ratio of distances up to which those between them are halved by their number: 14 steps at most for windows of up
    to 1024 tokens, and 15 by ratios alone."""
    small_weight: float = 0.1
    """Share of the least weight that is readable at which slopes are told from rotations: logs of weights of 1e-6 left
    5e-7 of theirs unexplained, and ALiBi beside a strong bias of queries had been taken for rotations."""

    # scene
    fullest: float = 0.98
    """Share of the ball's |z|^2 beyond which a token is drawn back: there x grows without bound."""
    eps_tokens: int = 6
    """Shrunk tokens asked at most for eps: each tells how far to shrink the next one, over 24 powers of ten."""

    alone_length: float = 0.6
    """Length of a fresh single token as a share of the radius: others were asked as long as tokens are, or short."""
    alone_misfit: float = 1e3
    """What a fresh single token's answer may be off by over the answers' noise: 20 layers, trained ones among them,
    were off by 5 at most, and a network of 1e-6 beside attention leaves 1e9 in float64."""

    # apart
    tries: int = 8
    """Draws of query token and tokens before the target is refused. A draw fails where two heads happen to weigh alike,
    or have one eigenvalue; eight failures are no accident."""
    shorter_again: float = 0.85
    """Length of the query token of a draw over that of the draw before: one saturated head among several that are not
    hardly shows in their sum, and shorter query tokens saturate none. A trained layer with scores of 117 had been
    refused in two runs of eight at full length; at 0.7 it is learned as often as at 0.85, to a digit less."""
    empty_length: float = 0.93
    """Lengths of the empty tokens as a share of the radius: near the edge for the same reason, with room for their
    steps."""
    empty_side: int = 4
    """Empty tokens on either side of the table at first; it grows until the rank shows and four cells are left over."""
    uneven: float = 0.6
    """Change of an answer against equal weights, as a share, from which on the query token is shortened: near
    saturation cells tell heads apart five times worse (0.9, the 98 % of 60 draws), and near equal weights no better
    (0.45)."""
    missing_part: float = 0.02
    """Part of what a token writes, all heads together, outside what the heads of a table write, from which on a head
    is missing there: 0.08 to 0.4 where strong scores left a head out."""
    missing_heads: int = 4
    """Times that a query token is shortened for them, by 0.216 each: to 2e-3 of its length and of its scores."""
    table_misfit: float = 300.0
    """Misfit of a table over what rounding leaves, up to which it is one: 200 tables left 1 to 150, and two fits that
    had not ended 1e6, whose heads seemed to write twice as many dimensions."""
    table_rise: float = 1e5
    """Rise of the noise of exact answers to what the others weigh in a table, beyond which it is drawn again: 2e-11 of
    it is left then. A trained layer with strong scores left 1e3 to 5e5 in 33 of 40 tables; in 7 a head weighed one
    token by 0.999 and more, the rise was 3e6 to 1e9, and what heads write was off by 4e-9 to 2e-7 (2e-10 else). At 1e6
    two of 64 runs on random layers with scores of 15 to 25 missed by more than 300 times their twins, one at 9e5."""
    rough_rise: float = 1e6
    """The same for a diagnosis, which reads on from no table: twenty queries more say no more of the kind."""
    tables: int = 4
    """Tables that are drawn at most until one has less: of such a layer 12 of 40 runs had
    more than 1e6. And draws of query
    token and tables, at most, from rounded answers: every second one is a good one."""
    step: float = 1e-6
    """Step of one-sided differences from exact answers, as a share of the radius: their error, the step, and that of
    rounding over the step are both far below what tells heads apart; the fit of the table removes them."""
    wide_step: float = 0.08
    """Step of central differences from rounded answers, as a share of the radius: its square is the error it makes,
    below that of the rounding over it."""

    # filling
    filling_step: float = 3e-6
    """Length of steps as a share of the radius: what they bend is fitted with them, and of their answers rounding over
    a step is lost. Three times as long, the eigenvalues of two of eight heads ran together in one of forty draws."""
    clear_gap: float = 0.3
    """Gaps between groups of eigenvalues over their widths, from which on heads are fitted to them: 5 and more in 324
    draws of heads with values of their own. A wrong split costs the few tokens of a fit, which it does not pass."""
    step_misfit: float = 100.0
    """What a fit to steps leaves of the answers at most, over rounding over a step and times the condition of what
    heads write, by which it rises: 0.1 in 240 draws."""
    wrong_heads: float = 1e-3
    """The same where the condition is out of all bounds: wrong heads leave a tenth of the answers."""
    settled_misfit: float = 3e3
    """What a fit to random tokens alone leaves of the answers at most, over their rounding."""
    spare_tokens: int = 20
    """Random tokens beyond the unknowns of key directions, for a Newton iteration that does not stall."""
    stalled_fits: int = 2
    """Query tokens before which no linear scores explain random tokens, from which on scores are not linear: of strong
    ones a fit stalls before one of eighty."""
    apart_jacobians: float = 2e-3
    """Difference of J' M^-1 J w and J M^-1 J' w, over their sum, from which on Jacobians do not commute: at most 1e-4
    in 324 draws of heads with values of their own, since steps bend, and 2e-2 and more in 180 of heads that share
    them."""
    bent_jacobians: float = 0.1
    """The same over a step and the condition of M, which raises what steps bend: at most 0.08 in 230 draws of heads
    with values of their own that are off by more than that, two of them nearly alike, and 0.3 and more in 140 of heads
    that share them. In between other query tokens are asked."""
    counted_heads: int = 22
    """Heads up to which they are counted where they do not fall apart, by as many query tokens and two more."""
    counted_apart: float = 1e-6
    """Singular value of what is written before them, over the largest, from which on it is a head's: 5e-3 and more
    before up to 24 query tokens of nine layers, four of them trained, and 3e-10 at most beyond as many as heads:
    rounding over a step, since all that a step bends is the heads' own."""

    # overlapping
    largest_overlap: int = 6000
    """Numbers of what all heads but one write into one output, up to which they are fitted together: a factorisation of
    that side takes 0.3 GB and half a minute."""
    outside_span: float = 1e-3
    """Part of what single tokens write outside what heads write before query tokens: steps leave 1e-5 of it, a
    residual or a gate a tenth and more."""
    looked_at: int = 8
    """Longer tokens that are asked first: whether they saturate heads shows in the weights of few."""
    saturated_weight: float = 0.01
    """Weight, or what is left beside it, below which a token says little of scores and of what others write."""
    saturated_share: float = 0.05
    """Share of such weights from which on tokens are brought nearer to the query token, which scores them like
    itself."""

    saturated_tries: int = 3
    """Lengths of query tokens, each 0.36 of the one before, where heads are saturated before them: scores of the last
    before themselves are 0.017 of those of the first, which turns 30 into 0.5."""
    loud_share: float = 0.1
    """Share of heads' weights before query tokens that are so saturated from which on shorter ones are tried."""
    parted_misfit: float = 1e-3
    """What is left of the logits of a head among those that share its values, over how they vary, up to which it is
    one: mixtures known to 1e-5 leave 1e-5 to 2e-4, other mixtures a tenth and more."""
    parted_tries: int = 4
    """Sets of longer tokens, each nearer to the query token, before heads that share values are given up: where scores
    are strong, four that share values were told apart at 0.6 and 0.36 of the way."""
    fitted_rise: float = 4.0
    """Error of what heads write over what the fit leaves times how least squares raise it: errors of scores reach it
    too. 0.5 to 12 in ten fits, mostly 3."""

    # values
    shrinks: int = 4
    """Times that a token, or a block before x = 0, is shortened at most: scores of up to 14 times `modest_score` show,
    so that two suffice mostly, and an eighth of the scores is left of halved blocks in the end."""
    modest_score: float = 4.0
    """Score that a token with too strong a one is shortened to: its weight and the others' are told well."""
    fine_error: float = 1e4
    """Error of what heads write, over the answers' noise, beyond which more tokens are asked: one draw in ten. What
    is read later is some hundred times worse, and 1e-8 is asked of it."""
    as_near: float = 10.0
    """Distance of a curve from the row space over that of the same token the other way around, up to which both have
    their roots: of 48 such pairs before a trained layer with scores of 117 it was up to 3 or 300 and more."""
    together_error: float = 1e6
    """The same where an answer is split among all heads, which raises the error by the conditioning of what they write
    together: 10 mostly, 600 for one layer in a hundred. Of 2e-10 in the weights a run keeps 5e-9."""
    worth: float = 2.0
    """Least factor by which a further token must lower what errors rise by; where it is the table of sums that is poor,
    tokens do not mend it."""
    mixtures: int = 64
    """Mixtures of the groups' weakest directions of which the best is asked: with some a group's share cancels."""

    # weights
    written_part: float = 0.66
    """Length of the part of a token that is written, as a share of the radius: about 0.95 / sqrt(2), so that the part
    that only makes scores is as long."""
    soft_values: float = 0.3
    """Singular values of all groups' values together, over the middle one, below which tokens do not follow them: where
    heads fill the space the least is a hundredth, and tokens made without this were nearly one token."""
    rough_error: float = 1e-7
    """Error of what heads write from which on weights are judged as those of rounded answers: logs and their operator
    of one step raise it up to 5e3 times, and a thousandth is asked of exact ones."""
    shown_error: float = 5.0
    """Error of what heads write over what it leaves of an answer, by the root of the share of its numbers that weights
    do not explain: these are few."""
    open_split: float = 0.02
    """Error of what heads write, times the condition of what they write together, from which on rounded answers do not
    show their weights: of 45 layers of the class in float32 those that were learned left up to 0.015, those whose
    weights contradicted each other 0.037 and more; layers outside the class that could be read 1e-4."""

    faded: float = 2 / 3
    """Share of the log of the least readable weight that slopes may take across a block, the rest being left to scores:
    slopes of 1/2 left the farthest of 24 tokens a weight of 1e-6, however weak its score."""
    sloped_tokens: int = 8
    """Tokens that slopes are read from, at most: the steepest of 32 heads (0.84) leaves the eighth 3e-3."""

    # turns
    lost_weight: float = 0.03
    """Least weight of further blocks over the one that is readable: below it a block's tokens are shortened. Single
    weights of 1e-11 had left 1e-4 in the keys of all, and those of 1e-7 of one run in 64 a thousand times what its
    twins were off by, which drew better ones."""
    first_queries: int = 3
    """Query tokens that are asked first: most lengths that are too long show there."""
    most_shortenings: int = 14
    """Times that they are shortened: 0.6^14 = 8e-4 of the length, and so of the scores, in the end."""
    below_norms: float = 0.1
    """Factor on query tokens where neither their length nor that of a block counts: two to four steps from a length of
    10 to below a norm of queries with an eps of 1e-6, where normed scores of up to 19 begin to shrink."""
    drowned_weight: float = 1e-10
    """Least weight below which nothing is told of its size, and query tokens are shortened by 0.216 at once: scores 23
    apart are 5 apart then."""
    same_weight: float = 0.02
    """Change of the least weight, as query tokens are shortened, below which their length does not count."""

    moved_turns: float = 3.0
    """Distance of an eigenvalue from the circle, and gap of the frequencies of two heads, over the error of weights and
    how it rises to eigenvalues at most, up to which it is that error: 0.7 at most in 24 draws of heads that score
    weakly and overlap four times. At 1e-3 whatever the error two of three such layers had been refused."""

    # qk_norm
    equations: float = 1.08
    """Equations over unknowns of a fit, s - 1 a token and s d: fewer raise errors, more cost queries."""
    blocks: int = 200
    """Random blocks of which the best conditioned one at each query token stands before it: one block before all of
    them left conditions of 40 at most and 600 at some, which were the error of the whole fit."""
    largest_map: int = 6000
    """Entries of one map up to which its null vector is computed: the equations are a square of that side."""

    # queries
    room: float = 0.8
    """Share of the dimensions up to which values and keys of all groups can be prescribed together."""
    designed_part: float = 0.6
    """Length of each of the two parts of a designed token, as a share of the radius: together, at right angles, 0.85 of
    it."""
    designed_score: float = 1.2
    """Typical score of a designed token: larger ones lose the digits of small weights, smaller ones their own."""
    block_candidates: int = 150
    """Random blocks tried where tokens cannot be prescribed; they cost arithmetic and no queries."""
    kept_blocks: int = 30
    """The best of these, kept for the choice at each query token, which looks at every one of them."""
    query_repairs: int = 6
    """Rounds in which query tokens are halved where a weight is lost in the noise: 2^-6 of the length, and so of the
    scores, in the end."""

    # llama
    shortest_window: int = 5
    """Least window: a block of two tokens, an empty one on either side, and the last."""
    fewest_quiet: int = 3
    """Dimensions of tokens that write nothing from which on a table of sums is tried: two tokens and a query token."""
    well_written: float = 2e-5
    """Relative error of what heads write, from rounded answers, that is good enough: float32 leaves 1e-5 in a good draw
    and 3e-3 in a bad one, and scores are known fifty times worse."""
    weight_error: float = 1e-8
    """Error of a weight of exact answers at most, which its log shows divided by the weight: strong scores left
    2e-9."""
    normed: float = 0.05
    """Logs of tokens and of their halves agree that well behind a norm, whose eps is all that tells them apart."""

    # assembly
    stated_over_estimate: float = 100.0
    """Bound over estimate: relative errors of long sequences are some ten times those of parameters, since averages of
    many tokens are short; ten more cover the spread of the reads."""
    outside_law: float = 30.0
    """Misfit of the keys over what the answers' noise explains, beyond which scores follow another law: layers of this
    class were seen with 1 at most, and a learned table of 1e-6 beside rotary positions with 200."""
    farthest_gap: float = 0.05
    """Gap at the longest sequence asked, relative to what attention writes, beyond which far tokens follow another law,
    whatever is stated of exact answers."""
    long_gap: float = 300.0
    """The same over the stated error: 192 layers of this class were seen with 16 at most, and scores that grow by a
    tenth from 512 tokens on with 1e5."""
    cap_bound: float = 10.0
    """Bound of a cap over its estimate: few scores are read for it, and those that bend most count; 6 was seen."""


ROTARY = Constants()
