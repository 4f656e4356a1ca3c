"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/stacks.md, "A deep pre-norm stack".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What is asked of a stack, and what of its answers counts."""

    # attention_stack: what the forecast supposes
    head_size_over_width: int = 16
    """Parameters of a head over D at ranks of four: beyond LARGEST together, the star is all there will be."""
    full_ray_logits: int = 1500
    """Logits of a ray up to which every ray is read in full where nothing is polished: each fit then takes a second."""
    norm_queries: int = 3
    """Queries that look for the norm, before anything else is known."""
    most_norm_queries: int = 4
    """The same where there is none: whether single tokens add up."""
    most_over_count: int = 8
    """Most queries over the closed form: networks took 4.8 to 5.3 times as many, answers in float32 3.2 times; ten
    times as many again where networks are learned themselves."""
    rays_asked_again: float = 1.25
    """Displacements asked over those there are, where heads between networks are not polished: encoder layers
    at d = 64 and 128 took 1.00 and 1.01."""

    # frame
    same_answer: float = 1e-5
    """Relative gap below which answers count as equal: float32 leaves 1e-6."""
    long_tokens: int = 3
    """Long tokens beyond the first that give gamma and beta of a final norm: two numbers for each output from four."""
    fewest_dimensions: int = 4
    """Fewest dimensions of normalised tokens: a displacement, a slice across it, and turns of both."""

    # far
    misfit_of_a_kink: float = 1e-5
    """Misfit that a kink leaves in a fit: at lambda = 2^13 one of a hundred tokens is within 1e-4 of a neuron's kink,
    and the extrapolation in 1/lambda is off by as much there."""
    nothing_written: float = 1e-6
    """Share of what is written below which answers to single long tokens are affine, so that no network shows, and
    frozen tokens may change places."""
    tries: int = 3
    """Displacements, query tokens and readings of paths that are tried: where scores are strong the first displacement
    is often too long, near a kink of a network the 1/lambda term is none, and a pick may change on the way."""
    frozen_tokens: int = 4
    """Frozen tokens of a random context."""

    # apart
    displacements: tuple[float, ...] = (1.2, 0.6, 1.2, 0.3, 1.8, 0.1)
    """|delta| over the radius, by attempt: 1.2 spreads logits where scores are of order one, stronger ones take
    less."""
    lifted_equations: float = 1.5
    """Equations over unknowns of the lifted problem: fewer leave a poor condition, more gain nothing."""
    isolated: float = 10.0
    """How far the solutions must stand apart from the rest of the spectrum."""

    # star
    turns_of_displacement: tuple[float, ...] = (0.1, 0.03, 0.01)
    """Turns of delta: the first keeps most digits, a step that got stuck is repeated nearer to what is known."""
    ray_answers_to_spare: int = 6
    """Answers of a ray beyond p + n: with fewer, other logits fit as well."""
    weight_off_ends: float = 1e-6
    """Weights of heads are kept this far from 0 and 1: nearer, their logarithms have lost digits."""
    answers_over_unknowns: float = 1.3
    """Answers of a displacement over p + n: they are all that is read, and the condition gains from a few more."""
    opposite_pairs_again: int = 4
    """Pairs of answers at every -delta: two were enough for a start."""
    widest_space: int = 5
    """Dimensions of S, behind a final norm, at most: as many outputs are given up, and three of them cover d = 16."""
    narrowest_space: int = 3
    """Fewest dimensions of S: a displacement, and a circle of q."""

    # near
    directions_near: int = 8
    """Directions that q moves in while heads of one layer are told apart: nine features and four settings to spare are
    fewer than the n (n + 3) / 4 that algebra asks for from seven heads on, so that they cost nothing."""
    directions_of_a_ray: int = 4
    """The same at each further displacement. Of 24 runs (two trained layers of 8 heads at d = 64, two like them) with
    three directions 2 % to 34 % of the displacements had to be asked again in 15, with four 3 % to 18 % in 11, with
    eight 3 % in 3, at 3 % more queries and at 10 % more."""
    logit_near: float = 4.0
    """Typical logit of the strongest head there, at most. With 2 and with 4 all of 20 such runs found all heads, errors
    of W at 2 three to six times as large; with 8, 18, and as displacements come (7 to 19), 15."""
    most_stuck: float = 0.5
    """Share of displacements at which heads may be lost at a first turn: in runs that went well it was 18 % at most,
    and of a start that is none nearly all are."""

    readings_near: int = 3
    """Readings of a layer at most: one in forty misses `sharp`, and displacements drawn afresh are independent."""
    sequences_that_confirm: int = 16
    """Fresh sequences that tell how far the layer is off: each is d numbers, in which every head shows."""
    logit_of_a_tie: float = 1.5
    """Largest score off the last token's there: weights of four tokens stay between 1/20 and 4/5."""
    confirmed: float = 1e-7
    """Misfit of these sequences over what is written, beyond which the layer is none: layers of D = 55 whose values
    decay as trained ones' do left 2e-8."""
    sharp: float = 1e-9
    """The same where the stack's own way may follow, which fits all parameters together: weights below 1e-6 that are
    dropped hide in what a misfit of 4e-9 grants. Of 80 layers of D = 16 to 40, |W| = 1 to 20, ranks of 1.5 to 2 times D
    together, all but two stayed below, both of 13 heads or more with |W| = 1. Where that way fails, as it does where
    scores are faint, what is `confirmed` stays."""

    # order
    contexts_that_feed: int = 4
    """Contexts whose 1/lambda term shows whether anything stands behind heads: neurons of a narrow ReLU network may all
    be off at one of them. It was 0.1 to 2 in 20 stacks with networks of 2 to 60 neurons."""
    feeding_over_rounding: float = 10.0
    """That term over the rounding of the answers, up to which nothing stands behind heads."""
    numbers_asked: float = 1.4
    """Numbers asked over unknowns, of the order and of a whole encoder."""
    order_retold: float = 0.3
    """Largest distance of an entry from 0 and 1 where ordinary answers will tell the order again: at random half the
    entries would be further away."""
    order_strict: float = 0.1
    """The same, and for a head's feeding itself, where nothing else will tell: two heads of different layers that
    attend alike are one head at infinity, which feeds itself by 1/4 at least if they write alike."""
    misfit_of_order: float = 0.05
    """Largest misfit of the 1/lambda term over its size, there: of heads that are what they seem it is 1e-3 at most, of
    two that attend alike and write differently 0.2 at least."""

    # polish
    numbers_beside_networks: float = 1.6
    """Numbers asked over unknowns where networks stay unknown: their heads are known from these answers alone."""
    length_that_shows_eps: float = 2.0**-6
    """Length of the short last tokens that show eps: variance 2e-4, of which the usual eps of 1e-5 and 1e-6 are a
    readable share."""
    first_guess_of_eps: float = 1e-5
    """First guess of eps: any is good, since ordinary tokens hardly show it."""
    polish_start: float = 1e-9
    """Misfit over the answers at which a stack is a start for the last fit, whose first step then is at rounding."""
    rounds_of_trimming: int = 4
    """Rounds in which contexts that a network's kink spoils are left out: each shows smaller ones."""
    least_kept_contexts: float = 0.8
    """Share of contexts that must stay: kinks spoil a few of a hundred, a model that is wrong misses most."""

    # networks
    lengths_of_networks: tuple[float, ...] = (2.0**9, 2.0**10, 2.0**11, 2.0**12)
    """lambda where the 1/lambda term is read: four leave six digits of it."""
    points_at_once: int = 16
    """Points that are asked at once, until they are more than a network has neurons: of more than 190, and of more than
    rank-one terms that d outputs and half of the directions can tell apart, networks are left unknown."""
    rough_slopes: float = 0.05
    """Misfit of a neuron's slopes, relative, with which it is still a start for Gauss-Newton."""

    # hard
    hard_length: float = 2.0**40
    """Length of tokens: scores of 1e24 pick one token wherever two differ at all, and constants and c are 1e-12
    beside."""
    hard_tokens: int = 256
    """Tokens of a sequence: two paths pick the same one in about 1 of 100 pairs, which costs a scan."""
    fewest_hard_tokens: int = 48
    """Fewest tokens: below, most scans have two paths on one token."""
    hard_move: float = 2.0**-16
    """How far tokens are moved, over their length: scores within this share of each other may change the pick, and
    2^-36 of the response is rounding."""
    equal_scans: int = 4
    """Scans after which tokens get unequal lengths: a head that prefers the token itself then leaves short ones."""
    hard_answer_off_paths: float = 1e-7
    """Gap of a hard answer and the sum of its paths, over the tokens' length."""

    # plain
    log_ratios: float = 1.15
    """Log ratios over the d (d + 1) unknowns of a head."""
    sequences_to_spare: int = 5
    """Sequences beyond that."""
    weights_over_outputs: float = 0.8
    """Weights per sequence over the outputs from which they are solved."""
    plain_start: float = 1e-2
    """Misfit of the same before Gauss-Newton: weights are read to eight digits, and a wrong stack misses by order
    one."""


STACK = Constants()
