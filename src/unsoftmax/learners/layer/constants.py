"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/attention-layer.md, "A real layer", method.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What is asked of a layer, and what of its answers counts."""

    # attention_layer: what the forecast supposes
    fewest_tokens: int = 33
    """Tokens that heads choose among where order does not matter."""
    fewest_ordered_tokens: int = 16
    """Tokens of a sequence where it does: a block of a dozen, an empty one on either side, and the last."""
    least_rank_supposed: int = 4
    """Rank of the heads that the upper end supposes at least."""
    most_search_queries: int = 300
    """Queries for a norm, the noise and the tokens that heads pick, at most; 20 to 80 are seen."""
    residual_exponent: int = 50
    """Length of a token, as a power of two, beside which nothing shows that heads write: a residual does."""

    # norms
    same_answer: float = 1e-3
    """Gap, as a share of the answers, up to which two of them count as equal, or as in proportion to their tokens.
    Without a norm, a bend or heads that have not settled only noise is left of it, which must stay below a thousandth;
    with them it is a share of order one."""
    lengthened: float = 2.0**20
    """Factor by which a context token is lengthened: behind a norm before attention it stays what it was."""

    # plain
    inside_limit: float = 0.98
    """Radius of the ball as a share of the norm limit: rounding must not carry a token over it."""
    off_even: float = 0.1
    """Share of an answer by which it must differ from attention to all tokens alike."""
    settling_tokens: int = 256
    """Tokens of the sequence that shows whether heads settle."""
    exchange_off_residual: float = 0.1
    """Share by which an exchange of tokens may miss a residual, or none: scores of the short tokens."""
    answer_due_to_scores: float = 0.75
    """Share of an answer that may be due to scores: beyond, heads saturate and their eigenvalues meet at the ends."""
    told_apart: float = 1e5
    """What scores must move answers by, over what differences of answers are good to (the root of their noise), for
    a refusal inside a ball to speak against the class: of twelve layers at ratios of 5e4 to 5e5 all were learned, of
    those at 2e4 to 1e5 eight, at 6e3 to 5e4 none."""
    ball_shrunk_by: float = 0.7
    """Step by which the ball is made smaller until then."""
    step_to_neighbour: float = 2.0**-4
    """Step to a neighbouring token: many times the noise of the answers, a fraction of what bends them."""

    # scan
    equal_within: float = 4.0
    """Units of the answers' noise within which two answers count as one: each of them rounds, and so does the sum with
    a residual."""
    token_sizes_asked: tuple[float, ...] = (1.0, 2.0**-10)
    """Typical coordinates of the tokens that are asked, within the norm limit: of order one, and so short that every
    head attends to all alike."""
    scan_tokens: int = 1024
    """Tokens of a scan: two of H heads pick the same one with probability about H^2 / 2 TOKENS."""
    enough_reach: float = 0.01
    """Reach, relative to the tokens, that no further scan is spent on, where answers are responses as they are."""
    enough_turn_reach: float = 0.06
    """Reach, relative to the tokens, that no further scan is spent on where answers show directions only, which need
    larger moves for as many digits; below it a quarter more probes are spent on every range."""
    first_token_size: float = 1e4
    """Typical coordinate of the tokens that are tried first: scores are some 10^8 times those of tokens of order one,
    so that heads of usual size settle on one token."""
    rms_over_limit: float = 0.4
    """Share of the norm limit that the norm of random tokens has as its root mean square: the rest is room for the
    longest of them and for their moves."""
    sequences_drawn: int = 10
    """Sequences drawn before the scan is given up. Two of H heads share a token with probability H^2 / 2 `scan_tokens`,
    so the first few nearly always do; the rest are for tokens made longer until heads settle."""
    scans_that_agree: int = 3
    """Scans that must agree on a number of heads that does not divide the outputs: one with two heads on one token is
    unlikely, three in a row are no accident."""
    query_lengthened_by: float = 0.125
    """Share by which the query token is lengthened to see a residual: a power of two, so that the longer token is as
    exact, and small enough that heads pick alike."""
    query_over_tokens: float = 2.0**-10
    """Length of the query token over that of the others: short enough that no head picks it by its score with itself,
    and a power of two, which takes no digits."""
    largest_move: float = 2.0**-9
    """Largest move of a token in the scan, relative to the tokens: far below the margins between scores of long tokens,
    far above the rounding of the answers, whatever their format."""
    turn_move: float = 2.0**-19
    """Largest move of a token in the scan, relative to the tokens, where answers show directions only and are good to
    1e-12: a direction is linear in small moves alone."""
    levels_of_moves: int = 32
    """Largest coefficient of a move, a whole number: so many levels tell 1024 tokens apart in few columns, and five
    bits keep every move on the grid."""
    levels_of_direction: int = 16
    """Largest entry of the direction that all tokens move in, a whole number, for the same reason: four bits are random
    enough."""

    # picks
    first_move: float = 0.25
    """Deviation of moves that is tried first, relative to the tokens, where answers are responses as they are. Halved
    until moves leave the picks alone."""
    first_turn: float = 0.5
    """Deviation of moves that is tried first, relative to the tokens, where answers show directions only: larger moves
    turn them more, and leave more digits."""
    least_move_tried: float = 2.0**-8
    """Deviation, relative to the tokens, at which halving ends: eight halvings of the tokens' own size, and moves that
    lose as many bits of every answer."""
    pairs_of_moves: tuple[int, ...] = (1, 1, 2)
    """Pairs of opposite moves that must agree, one first: most moves that are too wide show at once."""
    pairs_of_turns: tuple[int, ...] = (1, 2)
    """The same where answers show directions only: fewer, since a head whose moves left the pick is asked again."""

    # ranges
    moves_for_a_median: int = 8
    """Moves from which on their median is trusted to tell a jump."""
    response_over_median: float = 8.0
    """Size of a response over the median from which on a move is taken to have left its pick. Responses of random moves
    of one deviation differ by less."""

    # scores
    typical_logit: float = 0.7
    """Root mean square of the strongest head's logits."""
    least_weight_read: float = 3e-4
    """Smallest attention weight taken as it comes."""
    query_length: float = 0.5
    """Query tokens against displacements: shorter ones leave more digits to what the displacements write."""

    # keys
    filled: float = 0.6
    """Unknowns that query tokens asked together leave to the sequence they share, as a share of its tokens."""
    query_part_in_sum: float = 0.5
    """Part of each query token in their sum: exact in every number format."""
    key_beyond_rank: float = 1e-8
    """Key directions beyond the rank of P_h are hardly larger than this against the others, if W_h has that rank
    too."""

    # polish
    winner_margin: float = 10.0
    """Margin by which a token wins its head, in standard deviations of the scores under random moves. A move takes more
    than half of it with probability 6e-7."""
    tokens_over_moves: float = 2.0**16
    """Tokens over the moves that range over their margins; beyond it moves drown in the grid that tokens need."""

    # pre_norm
    one_sided_rounding: float = 1e-2
    """Rounding over `one_sided_step`, times the condition of the sum of all P_h, from which on one-sided differences
    show nothing of the weakest directions: at a hundredth their eigenvalues are as far off as heads are apart."""
    one_sided_draws: int = 2
    """Draws of one-sided differences, a quarter of the queries of fine ones: what both miss is not bad luck."""
    worst_condition: float = 1e9
    """Condition of the sum of all P_h from which on two draws decide, and a refusal names it: trained layers with 4e7
    are told apart, one with 6e12 is not, and 1e-13 beside it is what fine differences resolve with four digits to
    spare."""
    shown_pairs: int = 8
    """Pairs of tokens of which one at least shows a dimension that single tokens do not."""
    roundings_aside: float = 6.0
    """Rounding units of an answer to two tokens outside all one-token answers, from which on heads fill the space:
    heads that do not leave up to 2 in float32, trained ones that do 18 and more in the clearest of eight pairs."""
    exact_aside: float = 1e-12
    """The same share in float64, where sums of the layer itself round to a dozen units."""
    shared_aside: float = 1e-2
    """Share of an answer to two tokens outside all one-token answers from which on heads share values: such heads leave
    a share of order one there, weak directions lost in rounding far less."""
    own_noise: float = 1e-6
    """Noise over the answers from which on it is the answers' own, which drawing other tokens does not change."""
    draws_of_noisy_heads: int = 3
    """Draws of tokens spent where noise is above that, in place of `CORE.draws`: more would cost queries and gain
    nothing."""
    opposite_moves: int = 4
    """Displacements asked in both directions; the mean of each pair is the answer at the middle token, and four of them
    average its noise."""
    spare_moves: int = 8
    """Random displacements at the same logits, which enter the data of the refinement alone: equations beyond its
    unknowns."""
    copies_of_all: int = 4
    """Copies of every token beside which weights must stay what they are: sequences of eight, which every target that
    is learned here takes."""

    # derivatives
    one_sided_step: float = 1e-7
    """Step of a one-sided difference along a direction of typical effect, as a share of the radius."""
    central_step: float = 1e-3
    """Width of the differences that replace one-sided ones where these lose too much, as a share of the radius: with
    the third order cancelled the fourth power of it, 1e-12, is left, and rounding over it, 1e-13."""
    saturated_logit: float = 5.0
    """Median |logit| of the heads' weights from which on most of them are within a hundredth of 0 or 1, and too near
    each other to be told apart."""
    left_out_one_in: int = 24
    """One in so many directions is left out of the differences at first."""

    # post_norm
    direction_over_median: float = 4.0
    """Size of a direction over the median from which on the move is taken to have left its pick. Random moves of one
    deviation differ by less."""

    # shell
    opposite_far_tokens: int = 2
    """Pairs x, -x of far tokens whose mean is beta: one is enough in exact numbers, the second averages its
    rounding."""
    combined_tokens: int = 3
    """Random tokens beside the basis: each brings d equations for one scale, so they fix the scales of all basis
    tokens, and three leave equations to spare."""

    # assembly
    stated_over_noise: float = 100.0
    """Stated relative error over the noise of the answers times the conditioning of the worst read. Two digits are left
    for the solves in between, which that product does not count."""


LAYER = Constants()
