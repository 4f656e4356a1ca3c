"""Constants of this room that were measured or chosen, side by side, in the reading order of its map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What is asked to name a class, and which answers count as equal."""

    # answers
    equal_deviations: float = 20.0
    """Deviations of the measured noise within which two answers count as equal: noise itself is estimated from few
    answers."""
    repeated: int = 6
    """Sequences asked twice: one pair that differs shows a target that is not deterministic, and all of them measure by
    how much."""
    few: int = 2
    """Sequences, or vectors, of a question where every answer is many numbers: two tell a constant answer, and a kink
    moves few of the numbers."""
    line_points: int = 9
    """Points of the line: five fourth differences, each of five neighbours."""
    line_step: float = 2.0**-14
    """Step of the line in units of the tokens' norm, so short that fourth differences of a smooth answer are below
    rounding; exact in float32."""
    many_numbers: int = 8
    """Numbers of an answer from which on it says as much as that many scalar ones, so that few sequences suffice."""

    # examine
    drowned: float = 1e-3
    """Noise over size from which on longer tokens are tried."""
    hopeless: float = 0.02
    """Noise over size beyond which no observation says anything."""
    longer: float = 1e3
    """Factor by which tokens are made longer at once, up to the norm limit: additive noise falls by three digits beside
    the answers."""
    worth_longer: float = 1.5
    """Least factor, where the norm limit allows no more, for which asking everything again with longer tokens is worth
    its queries."""
    observed: int = 109
    """Queries of the observations and of the input limits, at most."""
    observed_vectors: int = 57
    """The same where every answer is many numbers."""

    # limits
    norms: tuple[float, ...] = (1e2, 1e4, 1e6)
    """Norms of tokens that are tried where no limit is declared; farther than this no learner goes."""
    lengths: tuple[int, ...] = (16, 64, 256)
    """Lengths of sequences that are tried where no limit is declared; farther than this no learner goes."""

    # sequences
    sequences: int = 5
    """Random sequences for each question: a coincidence at all of them does not happen."""

    # mixing
    copies: tuple[int, ...] = (1, 3, 7)
    """Copies of the first token: three readings on the way from a half to nearly all of the attention."""
    scales: tuple[float, ...] = (1.0, 2.0**-3, 2.0**-5, 2.0**-10)
    """Factors by which all tokens are shortened; scores shrink by their squares, so that at one of them the copies'
    effect is small and still heard, for weak and for strong W."""
    louder: tuple[float, ...] = (4.0, 16.0)
    """Factors by which all tokens are lengthened where noise hides what small scores move: that grows 64 times as they
    become four times as long, and rounding four times. A trained pair of heads in float32 was heard at the first."""
    small_share: float = 0.03
    """Share of the gap between two values, by which scores move the answer, that is small enough to be in proportion to
    their differences."""
    fine_share: float = 3e-3
    """Share below which that proportion holds to about a percent: such readings are preferred."""
    law_off: float = 0.03
    """How far the law may be off, relative to the effect itself; larger shares are allowed ten times themselves for the
    next order."""
    tie_scale: float = 2.0**-12
    """Scale at which scores tie: an offset of norm 10 still parts them by less than a percent."""
    short_sequences: int = 3
    """Sequences of short tokens that are compared with the mean of their tokens' answers."""
    distinct_tokens: int = 6
    """Different tokens in each of them: attention to the best few leaves some of six out."""
    unequal: float = 0.03
    """Share of the values' spread by which answers to short tokens may be off their mean: three times the percent that
    an offset of norm 10 leaves at this scale. Of neighbours behind a norm, trained layers of 32 to 256 dimensions leave
    1e-6, attention to the best one of six 0.4 and more, to the best four 0.1 and more."""
    unheard: float = 0.3
    """Share of the values' spread that 20 deviations of noise must not reach: above it nothing is said about the
    weights."""

    # weights
    bound_tokens: int = 8
    """Different tokens of a sequence; the last is the query token and is not copied."""
    bound_copies: int = 4
    """Copies of every second token: among eight tokens, both kinds are at the bound if there is one."""
    bound_norms: tuple[float, ...] = (2.0**11, 2.0**14)
    """Norms of the tokens: scores of a W of norm 1e-4 are in the hundreds at the first, and 64 times that at the
    second."""
    bound_moved: float = 1e-3
    """Share of the answers' size that copies must move in most sequences; ties of two scores by chance do it in few."""

    # one_row
    row_vectors: int = 4
    """Random vectors at which sums, multiples, opposites and curvature are read; four, since one of them may meet a
    kink by chance."""
    row_step: float = 2.0**-10
    """Step of the second differences, exact in every number format."""
    row_factors: tuple[float, ...] = (2.0**12, 2.0**13)
    """Factors of the long vectors: two, a power of two apart, whose answers tell growth of degree one from a bounded
    answer."""
    straight: float = 1e-6
    """Curvature, relative to the answer and in units of the vector's length, below which a segment is straight whatever
    the noise: rounding leaves 1e-9."""
    bent: float = 1e-3
    """Curvature, in the same units, above which it is bent whatever the noise: attention with a sink or with sigmoid
    weights was seen with 0.01 at least."""

    # layers
    spanned: float = 1e-6
    """Least singular value of the answers to single vectors, relative to the largest, above which they span everything:
    behind a LayerNorm only rounding is left of it, behind other norms a share of order 1 / d."""
    norm_pairs: int = 4
    """Pairs of random vectors x, y: each norm has to explain the answers at x, y, x + y and -x of all of them."""
    norm_length: float = 8.0
    """Root mean square of the vectors: an eps of 1e-5 inside the norm is then 1e-7 of it, and a residual 8 times as
    large as what the heads write takes one digit."""
    norm_misfit: float = 1e-3
    """Relative misfit up to which a norm explains the answers; a hundred times the relative noise, if that is more."""
    norm_apart: float = 10.0
    """How many times worse the other norm must do before the better one is named."""
    norm_draws: int = 3
    """Draws of four vectors, whose median decides."""
    norm_far: float = 2.0**20
    """How much longer the vectors are that show the norm's shift: what is added to them is then below float32."""
    norm_spare: int = 2
    """Vectors beyond the outputs, so that answers in general position span everything."""

    # served
    named_queries: int = 2
    """Queries beyond 4 d within which heads are told apart and a step of distance is asked: with 38 for order, norm and
    kind 40 + 4 d, a window aside. Keys of heads of d / 2 dimensions that fill the space take more, and are not
    asked."""
    small_dim: int = 32
    """Dimensions up to which a step of distance may take as many: what does not grow with d is more than 40 there."""

    # depth
    depth_step: float = 2.0**-4
    """First length of delta over the tokens' own; the second follows from the share that it shows."""
    depth_share: float = 0.01
    """Share of E beside P delta that is aimed at: its square is what higher orders add."""
    depth_within: float = 3.0
    """Factor by which the share may be off before delta is chosen again."""
    depth_least: float = 2.0**-16
    """Least second length of delta over the tokens' own: below, E is lost in rounding."""
    depth_most: float = 0.5
    """Largest second length: beyond, q + delta is no neighbour of q."""

    # scalar
    several_dimensions: int = 6
    """Dimensions in which heads are counted: large enough to part them, small enough for a few hundred queries."""
    kernel_dimensions: int = 3
    """Dimensions of the sketch: nine entries of W beside the table of one line, and fresh sequences that no table
    saw."""
    kernel_queries: int = 125
    """Kept for it: 50 for the table, 36 fresh sequences, 14 for v and W, the size of the pairs in up to three
    rounds."""

    # single
    sketch_dimensions: int = 4
    """Dimensions of the first sketch: one head of them costs twenty queries and few other classes pass for it."""
    noisy_rank: float = 1e-6
    """Relative noise above which the rank is not decided by a larger sketch."""
    near_sketch: float = 0.1
    """Share of the answers' size by which a sketch may miss fresh ones and still be worth naming."""
    sketch_overhead: int = 110
    """Queries of a sketch beside its unknowns: pilot and verification."""

    # sketch
    sketch_ties: int = 24
    """Fresh near ties and random sequences that a sketch is held against."""
    sketch_deviations: float = 6.0
    """Deviations of the measured noise that a gap may have without speaking against the sketch."""
    sketch_lengths: tuple[int, ...] = (2, 5, 12, 24)
    """Lengths of random sequences, long ones among them: what differs from softmax often shows only there."""
    sketch_per_length: int = 3
    """Random sequences of each length: few, since a sketch is tried for every class."""

    # tokens
    sketch_ids: int = 12
    """Ids of the sketch: all pairs of them are 144 queries, and a head over a vocabulary is one over any part of it."""
    token_queries: int = 360
    """Most queries of the sketch: twelve ids with their repairs took 280 at most."""
    token_lengths: tuple[int, ...] = (2, 3, 5, 9)
    """Lengths of fresh sequences of ids; the longer ones show what pairs do not."""
    token_per_length: int = 6
    """Fresh sequences of each length."""
    token_off: float = 0.05
    """Share of the values' spread by which fresh answers may be off: rounding to two decimals stays below, and no other
    way of mixing tokens that was tried did."""


DIAGNOSIS = Constants()
