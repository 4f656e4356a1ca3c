"""Constants of this room that were measured or chosen, side by side, in the reading order of its map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """Sizes, starts and ends of a fit, and what its residuals say."""

    # blocks
    block_numbers: int = 2**19
    """Numbers in one block of tokens (4 MB): a few of them stay in a processor's cache while it is used four times."""
    held_numbers: int = 2**22
    """Numbers held at once (32 MB): up to so many all blocks are kept, beyond it they are looked up again at every
    evaluation; and so many of the Jacobian are formed at a time on the way to a normal matrix."""
    few_records: int = 64
    """Fewer records than this are not worth a block of their own: padding costs less than one more pass of the loop."""

    # heads
    squared_floor: float = 1e-12
    """Squared lengths below this share of the largest are rounding: of singular values, and of eigenvalues of
    moments."""

    # mixture
    mixture_levels: tuple[float, ...] = (1.0, 0.5, 0.25, 0.12, 0.06)
    """Noise s of one level after the other, relative to the deviation of the answers: halving keeps every level inside
    the basin of the one before; below 0.06 most logs that can be read have been."""
    mixture_steps: int = 60
    """L-BFGS steps per level: the start of a fit need not be a minimum."""

    # search
    most_dense: int = 1200
    """Unknowns up to which normal matrices are formed: a factorisation then costs less than 60 products without it."""

    # recipes
    ridges: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01)
    """Ridges of the mixture starts, in turn: few records need large ones, hot heads small ones."""
    start_scores: float = 0.5
    """Deviation of the scores of random starts, of mixtures too: near 0 heads are alike and separate slowly, at 1 the
    wrong winners of hot sequences are fixed already."""
    start_factors: float = 0.3
    """Deviation of the scores of random factors."""
    same_minimum: float = 1e-6
    """Two rounds whose costs agree to this share ended in the same minimum."""
    same_rounds: int = 3
    """Rounds that must end in the best minimum known before no further mixture is tried."""
    em_levels: tuple[float, ...] = (1.0, 0.5, 0.25, 0.12)
    """Noise of the levels, relative to the root mean square of the answers; each is a start of its own."""
    em_rounds: int = 6
    """EM rounds per level: picks settle within five."""
    em_sweeps: int = 3
    """Passes over the heads per E step: each sees the others' new picks."""

    # choice
    arrived: float = 1e-9
    """Relative residual at which a start is in the right basin: from there convergence is quadratic."""
    passes: tuple[int, ...] = (8, 40)
    """Attempts per shape in the first rounds over all shapes: a shape that is too small never arrives, so that none is
    exhausted before the next has had its chance."""
    most_heads: int = 16
    """Heads beyond this are not looked for unless their number is given."""

    # noise
    roundings: float = 100.0
    """Deviations of rounding within which a record agrees exactly: the order of a target's sums is not known, and sums
    of d^2 products are off by tens of roundings at most."""
    short_arithmetic: float = 30.0
    """Deviations of one rounding that arithmetic in a short format may add up to: scores are sums of d^2 products, and
    in float32 logs of trained layers the answers are 3 to 20 roundings off."""
    rounded_at_end: float = 1.5
    """Deviations of one rounding up to which answers of a short format were rounded to it at their end alone: beyond,
    they were computed in it, or their tokens were rounded, and answers near 0 are as far off as others."""
    over_declared: float = 1.15
    """Deviations up to this many times the declared noise pass for it: declarations have one or two digits."""
    repetitions: int = 10
    """Repetitions needed before their spread is taken for the noise: fewer leave it uncertain by more than a
    quarter."""

    # settle
    nearly_arrived: float = 1e4
    """Squared residuals over those of an arrived attempt that are worth settling where one that arrived was no good: a
    relative residual of 1e-7."""
    most_settled: int = 25
    """Attempts settled at most: of ids that hardly show one in twelve was right, each took a fiftieth of a second."""
    halvings: int = 12
    """Halvings of a step through singular values before none is taken: along a weight that is nearly 0, such a step
    goes as far as a straight line would have to, and the exponential is shorter by a factor of a few."""
    least_gain: float = 1e-3
    """A step that lowers the sum of squared deviations by less than this moves no parameter by a thirtieth of its
    error."""

    # copies
    near_copy: float = 1e-3
    """Differences of sequences, over their spread in the log, below which they nearly ask the same: a fit that is right
    at one and wrong elsewhere is off by that share of an answer at the other. And least spread over the size of tokens:
    in a log of one sequence and near copies all are near."""
    copy_directions: int = 4
    """Random directions along which sequences are compared: in query tokens, means and mean squares of tokens."""
    copy_grids: int = 8
    """Grids whose cells gather near records; two records that are a tenth of a cell apart part company in all of them
    once in 500."""

    # directions
    most_directions: int = 700
    """Unknowns up to which J is taken apart into all its singular directions (d = 25 for one head: about a second each
    time); beyond, errors are sampled."""
    shown_beside_others: float = 0.5
    """Share of the change that J says for the stated bars, below which they bound nothing: right heads of scores from 2
    to 20 had 0.7 and more, before noise of up to a tenth; heads that leave the query out 0.3 to 0.5."""
    drawn_errors: int = 16
    """Errors drawn to see whether the model is linear as far as they reach: where it is not, one in eight shows it."""
    visible: float = 1.0
    """A direction whose error exceeds one unit of the parameters does not show in the answers at all."""

    # rivals
    other_scores: tuple[float, ...] = (2.0, 4.0, 0.5)
    """Sizes of the scores, over the fit's, from which another W is looked for: with 4 alone three of 34 consistent
    logs of heads that leave the query out kept a W outside their errors, and with 2 alone two of 320 right ones."""
    moved: float = 1e-3
    """Sizes of the parameters along directions left open by which a descent ended elsewhere: what tokens never vary
    stays at 0, and what records hardly hold moves. With 1 such a log kept a W outside its errors."""

    # sampled
    sampled_draws: int = 2
    """Draws of noise: with thousands of unknowns each is right to a few percent, unless one direction alone is weak;
    two draws miss a factor of 4 (the stated bars) in such a direction once in 25 logs, and then err towards the
    typical."""
    most_products: int = 400
    """Most products per draw; a log that needs more has directions it hardly shows."""
    draw_accuracy: float = 1e-3
    """Relative accuracy of a draw: it is an estimate."""
    largest_basis: int = 2**25
    """Numbers of a basis of undetermined directions that are still written out (256 MB)."""

    # spans
    no_span: float = 1e-13
    """Eigenvalues of token moments below this share of the largest are directions no token has (3e-7 in length)."""

    # narrowing
    smallest_coordinate: float = 1e-5
    """Size of a coordinate over the largest that is still brought to 1: below, rounding of the tokens would be, too."""

    # picks
    picked: float = 1e-6
    """A share of the answers' deviation: an answer this near to one token's value is that token's value."""
    picked_deviations: float = 3.0
    """Deviations of the noise within which it is, too: one answer in 400 is farther off by chance."""
    nearly_all: float = 0.9
    """Share of answers that are one token's value."""
    other_records: float = 0.5
    """Most of the answers that may be so near to a token of another record: beyond, nearness says nothing."""
    chance: float = 1e-3
    """Probability that noise as declared is taken for more: answers of argmax attention for others, residuals of a fit
    and of held-out records for ones beyond the bounds on their size."""
    falling_steps: int = 40
    """Steps of the falling noise, a factor 0.85 each: from the deviation of the answers down to 2e-3 of it."""
    warm_step: int = 16
    """The step from which values of a mixture are annealed (0.07 of the deviation, where a mixture ends): from the
    first step on, their picks would be forgotten."""
    pick_ridges: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03)
    """Ridges of the mixtures: few records need large ones, and random starts do best with the first two."""
    values_per_mixture: int = 4
    """Random values per random mixture, which takes twenty times as long."""
    most_mixtures: int = 25
    """Random mixtures at most. Of logs that hardly determine the scores (1.1 records per unknown, 8 to 32 tokens a
    record) one value in twenty arrives in the hardest, and one mixture in ten; together they miss one such log in
    thousands."""
    mixture_work: int = 2**20
    """Numbers in the tokens of all records that random mixtures may look at together, three of them in any case: with
    many records nearly every start arrives."""

    # lack_of_fit
    random_heads: int = 3
    """Random heads of the fitted size among the features: what they attend to stands for any further head."""
    other_heads: int = 12
    """Other heads that stand for targets of another class: with 24, right heads and wrong ones are told apart alike."""

    # verdict
    fewest: int = 5
    """Numbers that must be held out, in two records at least, and that must be left beyond the unknowns, copies counted
    once: fewer would agree by chance too often."""
    changes: int = 4
    """Random changes of all parameters, and as many of the scores alone, by which records are told apart."""
    finest: float = 1e-6
    """In exact logs a direction known to worse than this share of the parameters is listed as undetermined, and
    parameters that are a smaller share along such directions are called 0. And the share of an answer to which a
    held-out one must be foretold to test the fit."""
    significance: float = 0.01
    """A missing feature below this p-value is one: one right class in a hundred is called a surrogate for it. The
    chance above which a fit that agrees within the noise shows nothing, and with which what is said of records like
    those held out may be wrong."""
    bent: float = 100.0
    """Mean squares of what errors of the fit do, over what J says, beyond which errors are not known: tenfold bars."""
    bars: float = 4.0
    """Standard errors in the stated error of W and P: Gaussian errors of a norm exceed 2 of them in 1 log of 10^4, and
    the noise itself is only measured."""

    # result

    # fit
    token_range: float = 1e7
    """Largest typical entry of a token, and 1 / the least: heads came out to rounding at 1e-6 and 1e6 times ordinary
    ones, and not at 1e10, where a step of W that is small in the units of the fit turns every weight over."""
    longest_entry: float = 1e8
    """Largest entry of a token over the typical one: one of 1e6 was fitted to rounding, one of 1e10 not."""
    answer_range: float = 1e11
    """The same for answers: 1e-10 and 1e10 came out to rounding, 1e15 did not."""
    quiet_output: float = 1e-6
    """Least rounding of one output over that of the loudest of the same record: an output that is always 0, or 1e-20 of
    the others, would outweigh all that others say by more than float64 holds; at 1e-12 it does not."""
    bound_share: float = 0.5
    """Residuals below this share of the stated noise show that it is a bound: their deviation is then taken for the
    noise. Twenty numbers beyond the unknowns fall below it by chance in 3 of 10^4 logs; the bars are the same then."""
    curve_shares: tuple[float, ...] = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0)
    """Parts of the fitted records that the curve is made of."""
    curve_attempts: int = 8
    """Starts per point: a curve shows how far few records lead, not how far patience does."""
    patience: float = 2.0
    """Seconds before anything is said."""
    pause: float = 10.0
    """Seconds between two lines where there is no terminal to rewrite one in."""


FITTING = Constants()
