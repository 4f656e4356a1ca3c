"""Constants of asking, noise and detection that were measured or chosen, in the reading order of the map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """Whether answers differ: what is asked, how far rounding goes, and what would have been seen."""

    # references
    relative_move: float = 2.0**-20
    """Relative change in float64: its square and the rounding of the difference are both below 1e-6 of it."""
    random_moves: int = 32
    """Random changes averaged: the estimated variance is then right within a quarter, which the margin covers."""
    few_moves: int = 10
    """Changes of references so large that more would take long; their answers are averaged over many outputs."""
    large_reference: int = 10**5
    """Weights of such a reference."""
    format_sequences: int = 8
    """Sequences that tell in which number format a reference answers: float64 numbers are none of float32 by chance."""
    long_double_products: float = 3e8
    """Products of a token and a parameter that are formed in long double, which no BLAS helps: a few seconds."""

    # heads
    same_function: float = 1e-11
    """Relative gap at which this form and the model itself are taken for one function: float64 leaves far less."""
    longer_for_caps: float = 8.0
    """Times the usual norm that tokens are made: a soft cap shows in large scores alone."""

    # noise
    rough_move: float = 2.0**-8
    """Relative change where the reference answers in float32 only: a 64th of the digits on either side."""
    margin: float = 1.5
    """On the largest of three orders of operations, one of them term by term: 1 false alarm of 18,000 at 1e-3 on
    kernels that were not among the three (1.25: 14, of which 8 in one cell of 1000)."""
    wide_margin: float = 3.0
    """Where only the reference's own order of operations is known: sums term by term err up to twice as much at d = 64.
    And for few of a kind: 12 of 10,000 unchanged targets alarmed where it was 1.5 and every length was judged by its
    own two sequences."""
    sequential_error: float = 0.42
    """Error of a sum of d terms taken one by one, over sqrt(d) and the unit of rounding: measured on Gaussian heads."""
    least_constant: float = 0.5
    """Least constant: a kernel that rounds nothing here may round elsewhere."""
    least_short_constant: float = 0.2
    """The same for shorter formats, whose weights are stored so and rounded once: a single rounding has a deviation of
    0.42 of its unit, and any one kernel makes some of them."""
    stated_over_random: float = 3.0
    """Times the effect of changes at random by which a reference known to a stated error may be off: errors of
    recovered weights lie in the directions that answers show least, and go together in all answers."""
    zero_deviation: float = 1e-150
    """Deviation of answers that are 0 whatever is rounded: its square is still a number."""
    largest_products: int = 2**24
    """Largest tensor of products formed for sums term by term."""

    # designs
    tie_spread: float = 1.0
    """Scores of near ties lie within this of a tie: the slope of the sigmoid is then at least 0.2."""
    reach: float = 2.0
    """Times the norm asked for that the part of a token may have which sets its scores apart: at 1e-3 of the usual norm
    the smallest change that showed had been 3e-2 instead of 1e-8."""
    longer_norms: tuple[float, ...] = (0.25, 1.0, 2.0, 4.0)
    """Norms of the tokens of longer sequences, over the usual one: each band of lengths has another."""
    per_band: int = 2
    """Longer sequences of each length: a second one guards against tokens that happen not to trigger a change."""

    # statistics
    noise_shares: tuple[float, ...] = (0.05, 0.3, 0.5, 0.7, 1.0)
    """Parts of the modelled noise that may really be there when the power is computed: the model is an upper bound."""

    # power
    power: float = 0.995
    """Probability, over the noise, that a signal is seen, and share of the drawn changes that reach the signal stated:
    together they leave 1 % unseen."""
    drawn_changes: int = 256
    """Random changes of each kind; their signal has a closed form on near ties."""
    drawn_size: float = 2.0**-16
    """Relative size of these changes: small enough to be linear, large enough for float64."""
    least_shown: float = 2.0**-46
    """Part of the answers that such a change must move: less is what rounding leaves of the difference, and a weight
    that no answer shows (a key bias before a softmax) was said to show a change of 1e-4."""
    most_tests: int = 7
    """Tests among which alpha is divided at most."""

    # row_space
    row_roundings: float = 64.0
    """Roundings of the largest logit, for each root of the width, that sums of products leave: float32 leaves one or
    two, weights and activations of 8 bits behind float32 answers left 19 (450 at width 576)."""
    outside_row_space: float = 0.1
    """Part of the logits outside the row space from which on the reference is no output layer of this model: of an
    unrelated one of width d, 1 - d/V lies outside."""

    # detection
    repeated: int = 4
    """Sequences asked three times: twice at the start, once at the end. And prompts asked again at the end, to notice a
    target that answers at random."""
    single_tokens: int = 8
    """Sequences of one token, which show values alone."""
    directions: int = 24
    """Near ties in new directions. With m directions and n/m copies the signal needed for 99 % is least between 10 and
    100 directions (106, 89, 113 noise units for m = 10, 24, 100)."""
    norm_factors: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    """Token norms over the usual one: rounding of the answer itself dominates below 4; beyond it nothing is gained."""
    longer_factors: tuple[float, ...] = (16.0, 64.0, 256.0)
    """Further norms where the answers carry a declared tolerance, which longer tokens outscale."""
    calibrated: int = 96
    """Fresh near ties on which the constant of the noise is measured."""
    repeats_share: float = 0.1
    """Part of alpha given to the repeated questions; the rest is divided among the kinds of sequences."""

    # repeats
    nearby: float = 0.03
    """Relative change of every entry of a nearby question: several units of bfloat16 and of int8, so that rounding is
    new, and little for a smooth function."""
    nearby_change: float = 0.02
    """Part of a difference (squared) that is not the same again there: tokens of two are each moved by `nearby`, and
    slopes with them."""
    unmodelled: float = 64.0
    """Times the modelled rounding that a target of unknown biases may leave. Key biases of trained layers are up to 100
    times what keys of usual tokens are, value biases up to 40 times, of which a quarter reached answers: 6 at most. The
    next shorter format leaves 2^13 times as much as float32."""
    first_repeats: int = 24
    """Nearby answers of a kind that are bet on first: as many as near ties are asked. Of 84 changes of three times the
    smallest that shows all were seen, 83 with at most 40 of all kinds."""
    most_repeats: int = 72
    """The same where the first were won more than lost, and not yet enough."""

    # monitor
    queries_of_a_call: int = 8
    """Queries of a call: near ties but for one, which is a single token and a longer sequence in turn."""
    bet_on_ties: float = 0.9
    """Capital that is bet on near ties: seven of eight questions, and nearly all that scores show."""


COMPARING = Constants()
