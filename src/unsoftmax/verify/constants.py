"""Constants of single answers that were measured or chosen, in the reading order of the map.

Theory: docs/theory/verification.md, "Near ties".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What every plan shares, and what one number per sequence is held to."""

    # gaps
    roundings: float = 100.0
    """Units of rounding, of an answer or of a head's W, that a gap may reach, times the root of the dimension where
    errors of the scores add up over the coordinates: right models stay an order of magnitude below."""
    one_digit: float = 0.1
    """Relative error that leaves not one digit: no noise and no stated error excuses a larger gap, and a parameter that
    may be off by more is not seen."""
    doubt: float = 0.01
    """Probability with which what is said of sequences that were not asked may be wrong."""
    claimed: float = 1e-6
    """Most relative error that a learner may claim for itself where the answers use all digits of float64: more is no
    recovery of such a target."""
    one_token: int = 16
    """Fresh single tokens: they see only the values, or the network alone."""
    per_length: int = 12
    """Fresh random sequences of each length: three at each of the four sizes of tokens."""

    # sent
    lengths: tuple[int, ...] = (2, 3, 5, 8, 13)
    """Lengths of random sequences, Fibonacci numbers; `long_sequences` go on."""
    saturated: float = 16.0
    """Longest tokens over those whose scores are of order one: scores of 256 pick one token, and longer tokens would
    show the rounding of the scores instead of the model."""
    known: float = 0.5
    """Typical error of a score by which W's stated error may move the weights of a sequence: further out a right head
    may pick another token, and the best head near it is not found by steps."""
    larger: float = 4.0
    """Norm of both tokens, over those whose scores are of order one, whose product the larger scores have: 16."""
    outscaled: float = 2.0**10
    """Norm of long tokens over the others: their answers are as much larger beside a tolerance. Users do not send
    longer ones, and rounding of float32 stays far below it."""
    held: float = 60.0
    """Largest log kappa of a score in a plain sum: e^60 is 1e26, so that hundreds of tokens stay within float32's
    3e38."""

    # stated
    first_share: float = 2.0**-20
    """Relative error at which moves of the answers are computed first: linear in it to six digits."""
    visible: float = 2.0**-24
    """Moves beside the answers that rounding leaves nine digits of; parameters that move them less are moved
    further."""
    further: float = 2.0**10
    """How much further: a move that was not visible stays small against the answers, and so linear."""
    largest_share: float = 2.0**300
    """Share at which a parameter that still moves nothing is given up."""
    stated_draws: int = 8
    """Random directions of every parameter; the mean square of moves is then known within a third."""
    seeing: float = 0.75
    """Sequences that answer least to a parameter count by how much they do; the best quarter counts alike."""
    stated_over_estimate: float = 6.0
    """Stated over estimated error: over learners and number formats the worst of 700 errors was 3 times its estimate.
    An error of rank one, which a dozen random directions may miss, is the hardest."""

    # values
    per_length_behind: int = 8
    """Fresh random sequences of each length for a model with a network, which is tested at one size of tokens."""
    hidden_float32: float = 1e-5
    """Relative gap of single tokens that passes for a target that computes in float32 without saying so: about 100
    units of its eps."""
    sizes: tuple[float, ...] = (0.25, 1.0, 4.0, 16.0)
    """Sizes of tokens, in units of those whose scores are of order one, that take turns: from nearly uniform weights to
    saturated ones."""
    network_slack: float = 3.0
    """A network's residual is stated relative to its answers at standard normal inputs; elsewhere these may be
    smaller."""

    # ties
    near_ties: int = 48
    """Fresh sequences with near ties, where an error of the scores shows most; every third of them reaches down to
    small weights."""
    tie_length: int = 4
    """Tokens of a sequence with near ties: the last, and three that tie with it. Among those with small weights it is
    the least: two of small weight, one that takes the rest, and the last."""
    widest_score: float = 1.5
    """Largest score, or gap of scores, that a sequence with near ties is given: t s'(t), by which a change of the
    scores shows, is largest there."""
    longer_query: float = 2.0**10
    """Most that a query token is lengthened for small weights: one that hardly scores in a direction is left as it
    is."""
    faintest: float = -30.0
    """Scores of faint tokens lie down to this far below the others': a weight of 1e-13, beside which an answer of
    float64 still has three digits."""
    extreme: float = 0.95
    """Most of a token's norm that lies along a key direction; the rest is random, so that no two tokens are
    parallel."""
    power_steps: int = 3
    """Steps of the power iteration to long key directions: most of the gain, and query tokens stay apart."""
    seen_roundings: float = 64.0
    """Units of rounding from which on a weight is seen in an answer, which adds up as many numbers and more."""
    apart: float = 1e-3
    """Singular values of the key directions of all heads, over the largest, from which on they are held apart: heads
    that score alike need no token of their own."""

    # powers
    candidates: int = 8
    """Sequences drawn for each that is asked: a ReLU is dead on half of the single tokens, so 1 of 256 draws fails."""
    cancelling: float = 100.0
    """Sum of the sizes of weights over the size of their sum, up to which a sequence is asked: two digits lost."""
    shown_error: float = 0.1
    """Share of the stated error of W that fresh sequences may speak of: most of it is slack. Of 60 linear heads in
    float32 the worst showed 0.034 of it, of 60 other powers 0.0004."""
    alive: float = 2.0**-10
    """Score over |W| |x| |q| below which a sequence is left out: rounding decides what a head with weights of 0
    answers."""

    # precision
    largest_dimension: int = 64
    """Dimension above which a few fresh answers say nothing: each adds an unknown's worth of freedom at most."""
    mean_slack: float = 4.0
    """Bound of the root mean square of gap over what the stated precision leaves on average: an average of a few
    numbers, not a limit."""
    measured_slack: float = 2.0
    """Bound of the largest gap over what is allowed where the precision was measured: a measured deviation is no limit
    of single answers."""

    # tokens
    far_draws: int = 4
    """Draws nearest to the wanted small weight, of which the one with the value farthest from the others is asked: more
    would be farther off that weight."""
    last_tokens: int = 8
    """Last tokens drawn for each faint sequence, each with a pool of its own."""
    id_pool: int = 64
    """Most ids drawn from which a tie, or for each last token a faint one, is picked."""
    token_copies: int = 16
    """Most copies of a weak token by which it may tie with strong ones: they lift a score by log 16 = 2.8."""
    most_claimed: float = 0.05
    """Relative error beyond which nothing stated excuses a gap: weights may be unknown along weak directions, but
    answers that far off, or off by that share of the values' spread, belong to another model."""

    # labels
    label_tokens: int = 24
    """Fresh labels of single tokens beside the boundary, which see only the values; of sequences there are three times
    as many, since they see the scores too. With all 96 right, epsilon is 4.7 % at 99 % confidence."""
    label_rounds: int = 12
    """Rounds of drawing sequences beside the boundary; most are found in the first two."""
    false_alarm: float = 1e-4
    """How seldom declared flips alone may make a right model fail."""

    @property
    def token_ties(self) -> int:
        """Fresh sequences with near ties, and with a faint token, of each of their lengths: twice as many as random
        ones, since they are where an error of the scores shows most."""
        return 2 * self.per_length


VERIFY = Constants()
