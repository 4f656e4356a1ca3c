"""Constants of the explanations that were measured or chosen, in the reading order of the map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What changed: when a format, a scale, an entry or a low rank explains the answers of heads and layers."""

    # explain
    copy_roundings: float = 2.0**12
    """Units of rounding within which a difference is said to be that of a copy: heads and layers recovered from float64
    answers differed by 10 to 3,000 units."""
    nearly_explained: float = 0.99
    """Part of the squared difference that a format must explain where what it leaves is no rounding. It left 1e-4 on
    layers of a trained network whose int8 file is not quite this format; changes once taken for formats were explained
    to 0.3."""
    clean: float = 4.0
    """Standard deviations that an explanation leaves of fresh answers without a word: right ones of exact numbers left
    up to 3."""
    longest_fitted: int = 16
    """Tokens of the longest sequences whose answers enter fits: longer ones cost more than they tell."""

    # state
    fresh: int = 12
    """Fresh sequences on which an explanation is verified."""
    left_on_fresh: float = 100.0
    """Standard deviations (root mean square) that an explanation may leave on fresh sequences: right ones left up to
    60, which is what recovered numbers inherit from theirs; one more weight changed by 1e-9 of its size left 1e5 in
    float64."""
    left_of_residual: float = 0.1
    """Part of the reference's own residual that it may leave as well: differences near rounding are explained by
    anything that comes near rounding."""

    # scales
    tail: float = 1e-4
    """Chance that rounding alone exceeds a threshold, or asks for one column too many."""
    rounding_variance: float = 4.0
    """Residual variance over the modelled one at which a fit counts as rounding: the scaled model rounds a little
    more."""
    sure: float = 8.0
    """Standard errors by which a number must differ from the reference's to be named."""
    alike_factors: float = 1e-6
    """Relative spread below which factors of all heads count as one."""

    # naming
    first_questions: int = 8
    """Questions that name a format of weights alone."""
    more_questions: int = 56
    """Further questions where activations are rounded as well: fresh ones, on which the format's prediction is
    tested."""
    worth_asking: float = 0.05
    """Part of the difference that the best format must explain to be asked about further."""
    slope_one: float = 4.0
    """Standard errors within which the difference must come with slope one on the predicted one."""
    slope_seen: float = 5.0
    """Standard errors by which that slope must exceed 0."""
    exact_prediction: float = 1e-3
    """Part of the difference (as amplitude) below which a prediction is exact but for how scales were rounded."""
    nearest_formats: int = 4
    """Formats whose every variant, with activations or not, is tried."""
    independent_numbers: int = 8
    """Numbers of one vector answer that count as independent."""

    # signs
    single_pairs: int = 16
    """Pairs of single tokens: as many as bets need to reach the usual alpha when all agree."""
    partner_spread: float = 0.4
    """Partners are longer or shorter by up to this (logarithm), so that their rounding is new."""

    # reading
    rounded_length: float = 0.999
    """Length of a token over the one asked for from which it was rounded, not shortened: bfloat16 leaves 0.996 of a
    number and far more of a token."""

    # localise
    ties_per_head: int = 8
    """Near ties that show one head alone: a changed head was found in 240 of 240, none was called so wrongly."""
    entry_queries: int = 60
    """Queries a search for changed entries may take: about eight entries."""
    few_entry_queries: int = 24
    """Queries it may take where the change has rank one or two: two entries took up to 20."""
    few_rank: int = 2
    """That rank."""
    most_refined: int = 2048
    """Numbers of factors up to which they are fitted to all answers at once: a least squares of seconds. It left a
    third to a tenth of the error."""
    alone: float = 1e-9
    """Part of what a head writes that must lie outside what the others write for near ties to show it alone."""
    shut_move: float = 0.25
    """Part of what heads write along a near tie by which the answer moved where a weight went from one half to a
    quarter or less: such ties are no longer near ..."""
    most_shut: float = 0.1
    """Part of the readings that may be shut, a change being too large there to be read: up to it tokens are short
    enough, and beyond it no upper end is known."""
    kept_length: float = 4.0
    """Times that length up to which sequences asked before are kept."""
    shorter: float = 8.0
    """Times shorter the tokens are made at once: from those that outscale a tolerance to the usual ones in three
    steps."""

    # head_words
    left_elsewhere: float = 0.02
    """Part of such a change (as amplitude) that may lie in other entries: noise."""
    left_elsewhere_exact: float = 1e-6
    """The same for a target in float64: its square is the rounding of the sum."""

    # values
    entry_value_queries: int = 40
    """Queries for changed entries of v."""
    scores_too: float = 4.0
    """Residual of near ties over what changed values would leave there, beyond which scores changed as well."""
    most_values: int = 256
    """Most values that are found by asking one question for each."""
    questions_per_value: float = 1.5
    """Questions for each unknown: fewer would leave the least squares ill-conditioned where answers are short."""
    rounding_cut: float = 1e-12
    """Singular values of the least squares below this part of the largest are rounding."""
    explained_values: float = 12.0
    """Standard deviations, those inherited among them, that recovered values may leave on fresh pairs: values alone
    left up to 4; scores changed by 1e-4 of their size beside them 50 in float32, by 1e-3 more than 1e9 in float64."""

    # sparse
    ratio_deviations: float = 5.0
    """Standard deviations within which a ratio names an index."""
    ratio_gap: float = 0.25
    """Part of the distance between the ratios of neighbouring indices that the error of a ratio may take."""
    entry_length: float = 3.0
    """Token norms over the usual ones, as a product of both."""
    entry_steps: int = 8
    """Gauss-Newton steps at most: from six digits two are enough, large changes that shut some sequences took six."""
    sent_rounding: float = 2.0**-21
    """Relative error of a sum of weights because tokens are sent on the grid of float32."""

    # ranks
    table_rows: tuple[int, ...] = (3, 6, 11, 17)
    """Rows of the table: rank k is told from more by k + 1; ranks beyond 16 are called dense."""
    low_rank_part: int = 4
    """Part of the dimension (one over this) up to which a rank is called low, two at least."""
    above_noise: float = 6.0
    """Noise units above which a singular value, an entry, a sum or a residual is not noise: among a million Gaussian
    ones 5 is exceeded once."""

    # low_rank
    range_checks: int = 6
    """Questions outside the range at a new b: a missed direction shows in them with chi-square of six degrees."""
    unknowns_per_question: int = 4
    """Unknowns of a low-rank change for each question that may be spent on whether a further column is needed."""
    off_tie: float = 0.7
    """Scores of these near ties lie within this of a tie."""
    outside_range: float = 1e-4
    """Part of a key direction's square that must lie outside the range for scores to be tied there; else tokens would
    grow without bound, and are shortened instead: keys of a low-rank head may all lie in the range of its change."""
    last_step: float = 0.9
    """Part of the residual that a step may leave, else it was the last."""
    as_well: float = 1.5
    """Times the residual that factors of one rank less may leave: where that direction was none they leave the same,
    else more by orders of magnitude, unless it was within rounding."""
    step_parts: tuple[float, ...] = (1.0, 0.5, 0.25, 0.1)
    """Parts of a step that are tried: a large change is no first order."""

    # dense
    upper_end: tuple[float, ...] = (1.96 * 0.75, 0.05)
    """Upper end: normal quantile times a factor that covers 98 % at n = 24 and 95-100 % at n = 96, and its floor."""
    lower_end: float = 1.96 * 1.6
    """Lower end likewise."""
    other_model: float = 0.3
    """Relative difference of answers (root mean square over the reference's) beyond which it is another model."""

    # layers
    outside_space: float = 0.05
    """Part of a change (as amplitude) that may lie outside the space a matrix can reach."""
    quads: int = 24
    """Directions, each asked with four signs."""
    lengths: tuple[float, ...] = (256.0, 64.0, 16.0)
    """Norms of a over the usual one, shortened while weights are beyond reading: what changed values leave falls
    faster."""
    query_norm: float = 4.0
    """Norm of b over the usual one."""
    mixture_errors: float = 3.0
    """Standard errors of the part of a change that is a mixture of the reference's heads."""
    open_readings: float = 0.7
    """Part of the readings that must be open."""
    fitted_up_to: float = 1.0
    """Relative difference of what is written up to which arrays are fitted, where they are small: that of a layer with
    nothing in common is 1.4."""
    unchanged_values: float = 1e-14
    """Relative size of a change of values below which single tokens differ by a constant alone: rounding of the
    sums."""

    # layer_scores
    differences: int = 17
    """Differences per sequence at most: ranks up to 16 are told."""
    filled: float = 0.5
    """Part of the outputs that unknown weights may take: beyond it the least squares lose digits."""
    difference_score: float = 1.2
    """Largest score of a difference: all weights stay of the order of their mean."""
    head_steps: int = 6
    """Gauss-Newton steps at most, from factors that are right to a few digits: in the end each squares the error."""
    draws: int = 8
    """Factors drawn that explain the readings as well: what they change of an answer is then known within a quarter."""
    halvings: int = 5
    """Times a step is halved before it is given up."""

    # layer_values
    values_above_noise: float = 3.0
    """Singular values of the differences, over those of noise, that count."""
    most_solved: int = 128
    """Dimension up to which a change of full rank is asked for too: d queries whatever its rank."""
    spanned: float = 0.05
    """Singular values of the tokens asked, over the largest, below which a direction counts as not asked."""


EXPLAINING = Constants()
