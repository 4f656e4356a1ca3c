"""Constants of heads, networks and layers that were measured or chosen, in the reading order of the map.

Theory: docs/theory/verification.md, "Several heads".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What heads, networks, layers and stacks are held to."""

    # heads
    head_tokens: int = 8
    """Fresh single tokens: they see only the sum of the values, which a few vectors show."""
    head_per_length: int = 4
    """Fresh random sequences of each length of `verify.values`, one at each of its four sizes of tokens: what W is
    shows in the ties, so that these are few, but a rule for small weights shows in long tokens alone."""
    head_ties: int = 32
    """Fresh near ties of all heads together, shared among them."""
    ties_per_head: int = 6
    """Near ties of each head at least, however many heads share `head_ties`: `_CONFIDENCE` counts on six gaps."""
    hidden: float = 1e-6
    """Most of a gap on single tokens, relative to the values, that passes for the rounding of a narrower format than
    was declared: a dozen or so units of float32 rounding."""
    narrow: float = 2e-9
    """Gaps on single tokens up to this, relative to the values, are no narrower format, whose rounding is at least
    6e-8, but an error of the values found."""
    function_gap: float = 1e-9
    """Least bound of the gap of answers per score, relative to the values, in float64; noise, a tolerance or an error
    the learner claims widens it. Heads of well-conditioned values leave 1e-14 to 1e-12."""
    silent_pairs: int = 4
    """Fresh pairs of tokens at which silence, or a head with W = 0, is checked: one for each of the lengths 1, 1, 4 and
    16 of `_silence`."""
    own_roundings: float = 8.0
    """Units of rounding, of the longest token times all values, that an answer may be off by itself: float32 sums are
    off by 0.2 of one."""
    far: float = 1e9
    """Length of tokens at which a head with W = 0 is asked, for other heads with entries up to 1: a score of 1e-8 there
    is a W of 1e-26."""
    heard: float = 1e-12
    """Least bound of a gap, relative to all values, where no head found has a value: thousands of units of float64
    rounding, and a head this weak is no head of float64 answers."""

    # head_ties
    last_digits: float = 30.0
    """Units of rounding, times the root of the dimension, by which a W may be off that ties do not show: the last
    digits of its entries."""
    small_weight_gaps: float = 3.0
    """Gaps where weights are small, over what rounding and the errors of W leave there: right copies stay below 0.4,
    also those that float32 left off by 1e-3, and a weight that is dropped leaves 10 and more."""
    first_order: float = 1e-3
    """Typical score at the longest tokens allowed, below which a thousandth and less of what attention does tells heads
    from each other."""
    confidence: float = 3.0
    """Gaps are samples of the error along random directions; three times the largest of six or more covers its size."""

    # explained
    explained_roundings: float = 2.0
    """Units of rounding of every step that a number of an explanation may be off by: those of float32 are off by
    0.3."""
    best_left: float = 2.0
    """Bound of what the best head leaves of a sequence's explanation, in units of what its numbers may be off by. It is
    1 where every number is off by all of it; 1273 right heads before three to six decimals leave up to 1.6 of one
    value."""
    explained_last_digits: float = 64.0
    """`CORE.roundings_granted` in float64, where a head is not fitted once more: the last digits of W that its learner
    left."""

    # best_head
    best_steps: int = 4
    """Gauss-Newton steps at most: two bring the W of answers rounded to three decimals to the best one."""
    best_gain: float = 0.8
    """A step that leaves more of what was left before it is the last: no head is found that way."""
    best_iterations: int = 400
    """Iterations of one step at most."""
    best_digits: float = 1e-6
    """What a step leaves of the gradient, relative: the next one takes off the rest."""
    best_by_values: int = 30
    """The same where answers are values alone: where W is as far off as Theorem 6.1 states, each takes off three
    quarters of what is left; from where steps gain nothing, values that are missed most count for more."""
    best_lightest: float = 1e-3
    """Least weight of a value over the mean one: an answer that is met by chance is still an answer."""

    # rays
    ray_directions: int = 6
    """Fresh directions that are asked for, the best half of which carries the checks."""
    ray_checks: int = 16
    """Sequences of several lengths along these directions."""
    dead_ray: float = 1e-4
    """Directions in which the network answers with less than this share of the best do not tell W."""
    equal_outputs: int = 6
    """Pairs of sequences with the same attention output and last token, sizes in turn: what else answers hang on moves
    each of them."""

    # heads_behind
    behind_pairs: int = 8
    """Fresh pairs whose answers tell how loud the network is, and for each head as many at which it alone is undecided;
    at least three of them must be clear of rounding."""
    behind_faint: int = 4
    """Fresh query tokens for each head at which its weight is small: rules for small weights show there."""
    behind_silent: int = 16
    """Fresh pairs at which every head found is off: a head that was missed is on in half of them."""
    behind_quiet: float = 1e-11
    """Bound, in float64, of what is heard where all heads are off, relative to the network's answers; other formats
    have 1e4 units of their rounding."""

    # networks
    network_vectors: int = 6
    """Random vectors, few, for each depends on about half of all neurons; and as many beside kinks, where a neuron that
    is misplaced shows most."""
    network_pairs: int = 2
    """Sequences of two tokens, where the target takes them: one of the two alone decides."""
    beside_kink: float = 1e-3
    """Distance of a fresh vector from the kink it is put beside, in units of the radius: a kink that is off by more
    than this shows."""

    # layers
    hot_score: float = 20.0
    """Score off a tie behind a norm, where tokens cannot be short, from which on every other sequence of ties gets
    tokens nearer to the last: a weight is 2e-9 there, and what an error changes of it is lost. Trained layers with
    scores of deviation 6 to 18 leave 170 to 600; without this, a W known to 1e-10 was said to be unknown."""
    layer_tokens: int = 4
    """Fresh single tokens: each answer has as many numbers as the layer has outputs, so that few suffice."""
    layer_ties: int = 14
    """Fresh sequences with near ties, heads taking turns: 14 sequences of three tokens beside the last are 42 turns."""
    layer_roundings: float = 1000.0
    """Units of the answers' rounding, times the root of the dimension, that a gap may reach: a layer's answer rounds in
    projections, norms and weights alike."""
    reach: float = 10.0
    """Largest gap of an answer's many numbers over the root mean square that the stated error of every parameter
    leaves."""

    # far_below
    faint_share: float = 0.01
    """Rounding of an answer over what a faint token adds to it, up to which that is looked at; and the share of it that
    rounding may so leave."""

    faint_roundings: float = 10.0
    """The rounding of an answer over the largest gap of single tokens: differences have two, and gaps are of few."""

    # small_weights
    small_weight_sequences: int = 8
    """Fresh sequences with small weights, heads taking turns: as many as most layers have heads."""
    depths: int = 4
    """Tokens of small weight for a head: about six apart in score, so that a rule for weights below any threshold
    within reach changes one by more than a four-hundredth of the threshold."""
    shallow: float = -6.0
    """Scores from here on down are of small weight: a four-hundredth, beside which random sequences see larger ones."""

    # stacks
    long_contexts: tuple[int, ...] = (33, 299)
    """Frozen tokens of two more contexts, for the same reason, where ordinary sequences cannot be foretold."""
    turned: float = 0.03
    """Angle by which their last tokens are turned then: hundreds of times what the lengths that are extrapolated from
    turn them by, so that the kink is left behind, and little to a score."""
    stack_roundings: float = 10.0
    """Gap of extrapolated answers over their noise, which already is a bound of their rounding: kinks and terms of
    higher order leave more, as in `Far.clear`."""
    stack_claimed: float = 1e-3
    """Largest stated error that widens the bound: answers further off belong to another stack."""

    # output
    output_prompts: int = 8
    """Fresh prompts: each is V - d numbers that the row space must explain."""
    output_tops: int = 256
    """Fresh prompts where only the likeliest tokens are shown: the block of common tokens needs many."""
    output_columns: int = 64
    """Tokens beyond twice the width that a fresh prompt is asked about where they must be chosen."""
    output_slack: float = 8.0
    """Gaps over the noise that the singular values past the width showed: a largest of 8 rows, and rows of other
    sizes."""
    output_off: float = 2e-3
    """Twice what the learner lets pass on the prompts that it fits: fresh ones are off by more."""

    # circuits
    circuit_prompts: int = 24
    """Fresh prompts, lengths from 1 to the longest in turn: each is d numbers that the model must foretell."""
    circuit_roundings: float = 1e6
    """Gap over the rounding of the answers: places known to 1e-10 leave as much in long prompts."""


MODELS = Constants()
