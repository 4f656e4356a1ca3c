"""Closed forms: unknowns and query counts, one function per statement. d dimension, r rank, H heads, m width."""

from __future__ import annotations

import math

from unsoftmax.arguments import checked


@checked
def single_head_unknowns(d: int) -> int:
    """Entries of W and v."""
    return d * d + d


@checked
def single_head_queries(d: int) -> int:
    """Theorem 4.1: d one-row queries for v, d^2 pair queries for W. Equal to the unknowns, so optimal."""
    return d + d * d


@checked
def approximate_queries(d: int) -> int:
    """Theorem 6.1: as many as with exact answers."""
    return single_head_queries(d)


@checked
def approximate_tolerance(
    d: int,
    W_bound: float,
    margin: float,
    accuracy: float,
    value_accuracy: float | None = None,
    *,
    zeros: bool = True,
) -> float:
    """Theorem 6.1: the tolerance of an answer that suffices for ||W^ - W||_F <= accuracy, ||v^ - v|| <= value_accuracy.

    ||W||_F <= W_bound (at least 2), |v| <= 1, nonzero |v_i| >= margin. `zeros`: v may have zero entries, which halves
    it (an entry of W then takes two readings).
    """
    tolerance = min(margin / 2, margin * accuracy / (80 * W_bound**2 * d))
    if value_accuracy is not None:
        tolerance = min(tolerance, value_accuracy / math.sqrt(d))
    return tolerance / 2 if zeros else tolerance


@checked
def approximate_accuracy(d: int, W_bound: float, margin: float, tolerance: float, *, zeros: bool = True) -> float:
    """Theorem 6.1 read the other way: ||W^ - W||_F that answers within `tolerance` <= margin/2 guarantee."""
    return (2 if zeros else 1) * 80 * W_bound**2 * d * tolerance / margin


@checked
def norm_budget_error(d: int, tolerance: float, max_norm: float, value_norm: float) -> float:
    """Root mean square of ||W^ - W||_F for answers off by +-tolerance and tokens of norm max_norm, small logits.

    Two tokens at the limit R with cosines +-1/sqrt 3 to v: an answer's error becomes 4 tau / (2 R |v| / sqrt 3) in the
    logit, and solving for W multiplies by d / (R sqrt(2/3))^2. No margin on v, no bound on W.
    """
    return 3 * math.sqrt(3) * d * tolerance / (max_norm**3 * value_norm)


@checked
def affine_head_queries(d: int) -> int:
    """A head with key offset c and output constant: one query per unknown, d^2 + 2d + 1."""
    return d * d + 2 * d + 1


@checked
def averaging_blocks(d: int, tolerance: float, max_norm: float, value_norm: float, accuracy: float) -> float:
    """Blocks of d + d^2 queries after which independent noise of this deviation leaves ||W^ - W||_F <= accuracy.

    `norm_budget_error` over sqrt(blocks), times what a sum of d^2 squares spreads: while logits are small.
    """
    ratio = (1.1 + 3 / (d + 1)) * norm_budget_error(d, tolerance, max_norm, value_norm) / accuracy
    return float(max(1, math.ceil(ratio**2))) if ratio < 1e150 else math.inf


@checked
def averaging_queries(
    d: int, tolerance: float, max_norm: float, value_norm: float, accuracy: float, W_bound: float
) -> float:
    """Queries that suffice for every ||W||_F <= W_bound and |v| >= value_norm, whatever their directions.

    Scores up to s = W_bound max_norm^2 must be brought to order one: the error grows by 1.5 + 2 s / sqrt d at most. To
    this come first looks: at v, and at W for each fourth of the length of x2 that is tried.
    """
    scores, share = W_bound * max_norm**2, (tolerance / (max_norm * value_norm)) ** 2
    small = (1.1 + 3 / (d + 1)) * norm_budget_error(d, tolerance, max_norm, value_norm) / accuracy
    blocks = (small * (1.5 + 2 * scores / math.sqrt(d))) ** 2
    looks = (40 / (d * d + d) + 4 + 300 * share) * (2 + math.log(1 + scores, 4))
    return (1.2 * blocks + looks) * approximate_queries(d) + 6400 * d * d * share


@checked
def low_rank_unknowns(d: int, r: int) -> int:
    """Degrees of freedom of a rank-r W, r(2d - r), and of v."""
    return r * (2 * d - r) + d


@checked
def low_rank_queries(d: int, r: int) -> int:
    """The cross scheme: d for v, rd for r columns, r(d - r) for the rows outside. Equal to the unknowns, so optimal."""
    return d + r * d + r * (d - r)


NUCLEAR_NORM_CONSTANT = 4.0
"""Measurements per unknown of W with which the nuclear-norm program of Theorem 5.1 recovered every instance tried (the
theorem leaves its constant open); the transition from failure to success lies between 2 and 3."""


@checked
def nuclear_norm_measurements(d: int, r: int, constant: float = NUCLEAR_NORM_CONSTANT) -> int:
    """Theorem 5.1's m = O(rd) as constant * r(2d - r); d^2 measurements always suffice."""
    return min(math.ceil(constant * r * (2 * d - r)), d * d)


@checked
def nuclear_norm_queries(d: int, r: int, constant: float = NUCLEAR_NORM_CONSTANT) -> int:
    """Theorem 5.1: d for v, m random rank-one probes for W."""
    return d + nuclear_norm_measurements(d, r, constant)


@checked
def relu_network_unknowns(d: int, m: int, bias: bool = False) -> int:
    """Neurons w_k A_k up to positive scaling: d numbers each (d + 1 with a hidden bias, plus the output bias)."""
    return m * (d + 1) + 1 if bias else m * d


@checked
def relu_network_gradient_queries(d: int, m: int, bias: bool = False) -> int:
    """Gradients of the m + 1 cells of a great circle: d - 2 steps off its plane and a check each; biases add one."""
    return (m + 1) * (d if bias else d - 1)


@checked
def transformer_unknowns(d: int, m: int, bias: bool = False) -> int:
    """W and the network behind it."""
    return d * d + relu_network_unknowns(d, m, bias)


@checked
def transformer_queries(d: int, network_queries: int) -> int:
    """Section 4.1: the network on one-row queries, then Theorem 4.1 on the odd part at two queries each."""
    return network_queries + 2 * single_head_queries(d)


@checked
def multi_head_unknowns(d: int, H: int, r: int | None = None) -> int:
    """H generic heads, of rank r if given."""
    return H * (single_head_unknowns(d) if r is None else low_rank_unknowns(d, r))


@checked
def orthogonal_heads_queries(dims: list[int]) -> int:
    """Proposition C.2: Theorem 4.1 inside each known subspace of dimension d_h."""
    return sum(single_head_queries(d_h) for d_h in dims)


@checked
def membership_bits(accuracy: float) -> int:
    """Whole bits per number: log2(1 / accuracy) rounded down; the rest is the bracket's."""
    return max(1, math.floor(math.log2(1 / accuracy)))


@checked
def membership_floor(d: int, accuracy: float, r: int | None = None) -> float:
    """One bit per label: no learner knows all unknowns (the norm of v is not one) to `accuracy` with fewer queries."""
    unknowns = single_head_unknowns(d) if r is None else low_rank_unknowns(d, r)
    return (unknowns - 1) * math.log2(1 / accuracy)


@checked
def membership_finest_accuracy(d: int, eps: float) -> float:
    """What rounding leaves: labels near the boundary are right to about eps sqrt d in the share of attention."""
    return 40 * math.sqrt(d) * eps


@checked
def membership_noisy_rounds(d: int, accuracy: float, flip: float, delta: float) -> int:
    """Answers that settle one number if each is flipped with probability `flip`: its bits, and those of its certainty
    delta / (2 d^2), at 1 - H(flip) bits an answer."""
    capacity = 1 + flip * math.log2(flip) + (1 - flip) * math.log2(1 - flip)
    return math.ceil((math.log2(1 / accuracy) + math.log2(2 * d * d / delta)) / capacity)


@checked
def membership_noisy_lead(d: int, flip: float, delta: float) -> int:
    """Lead of answers at which a decision is wrong with probability delta / (40 d)."""
    return math.ceil(math.log(40 * d / delta) / math.log((1 - flip) / flip))


@checked
def membership_noisy_pilot(flip: float, delta: float) -> int:
    """Entries asked per level to find the size of W: all or none pass for half with probability delta / 100 at most."""
    deviations = math.sqrt(2 * math.log(100 / delta))
    return max(32, math.ceil(2 * flip * (1 - flip) * (2 * deviations / (1 - 2 * flip)) ** 2))


@checked
def membership_noisy_queries(d: int, accuracy: float, flip: float, delta: float = 0.01) -> int:
    """About what flipped labels cost in all: every number, 4 d decisions for v, ten levels for the size of W."""
    numbers = (d * d + d) * membership_noisy_rounds(d, accuracy, flip, delta)
    decisions = 4 * d * membership_noisy_lead(d, flip, delta) / (1 - 2 * flip)
    return math.ceil(numbers + decisions + 20 * membership_noisy_pilot(flip, delta))


@checked
def multi_head_queries(d: int, H: int) -> int:
    """Generic full-rank heads by isolation: d + (H - 1) d for the values, H d^2 for the matrices; the unknowns.

    Finding the heads (jumps on a half circle, one linear piece per head) comes on top, about H (d + 25).
    """
    return d + (H - 1) * d + H * d * d


@checked
def multi_head_rational_queries(d: int, H: int) -> int:
    """Rational interpolation as done here: d one-token queries, 2H ratios for d^2 pairs and d - 1 linking pairs."""
    return d + 2 * H * (d * d + d - 1)


@checked
def rational_queries(d: int, H: int) -> int:
    """arXiv 2608.03294: rational interpolation in the repetition ratio, 2H ratios for each of 2d^2 - 1 pairs, and 1."""
    return 4 * H * d * d - 2 * H + 1


@checked
def membership_value_error(d: int, eps_W: float, W_bound: float, margin: float) -> float:
    """Theorem B.1: the error of v that an error eps_W of W asks for, eps_W mu^3 / (40 Wbar d)."""
    return eps_W * margin**3 / (40 * W_bound * d)


@checked
def membership_value_queries(d: int, eps_v: float, delta: float) -> int:
    """Theorem B.1: random unit vectors so that every entry of v is within eps_v with probability 1 - delta."""
    R = math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)
    return math.ceil(2 / (eps_v * R) ** 2 * math.log(2 * d / delta))


@checked
def membership_interval(W_bound: float, margin: float) -> tuple[float, float]:
    """Theorem B.1: where the length a of the query token at the flip lies, whatever W and v are."""
    return math.sqrt(margin / (8 * W_bound)), math.sqrt(1 / (2 * W_bound * margin))


@checked
def membership_entry_queries(d: int, eps_W: float, W_bound: float, margin: float) -> int:
    """Theorem B.1: bisection steps per entry of W, with the constant its proof leaves open.

    sigma(s W_ij) s must come out within eta / (4 Wbar^2 L), eta = eps_W / d and L = 4.2554 the slope of the logit at
    sigma(1/2). An error eps_v of v uses eta / (20 Wbar^2) of that; an error tau of a adds tau sqrt(2/(Wbar mu)) / mu,
    and 10 % for the product of both errors.
    """
    eta = eps_W / d
    left = eta / W_bound**2 * (1 / (4 * 4.2554) - 1 / 20)
    tau = left * margin * math.sqrt(W_bound * margin / 2) / 1.1
    low, high = membership_interval(W_bound, margin)
    return max(1, math.ceil(math.log2((high - low) / (2 * tau))))


@checked
def membership_queries(
    d: int, eps_W: float, W_bound: float, margin: float, delta: float = 0.01, eps_v: float | None = None
) -> int:
    """Theorem B.1 in all: random vectors for v and bisection for every entry of W.

    eps_W absolute (Frobenius), W_bound >= ||W||_F, margin <= min |v_i| of the unit v; `eps_v` replaces the theorem's.
    """
    eps_v = membership_value_error(d, eps_W, W_bound, margin) if eps_v is None else eps_v
    return membership_value_queries(d, eps_v, delta) + d * d * membership_entry_queries(d, eps_W, W_bound, margin)


@checked
def token_head_unknowns(V: int, r: int) -> int:
    """Values of V tokens and their V x V gaps as a matrix of rank r + 1: V + (r + 1)(2V - r - 1)."""
    return V + (r + 1) * (2 * V - r - 1)


@checked
def token_head_queries(V: int, r: int) -> int:
    """V one-token queries, a reference row of gaps, r rows and r columns; the diagonal is known to be 0.

    Fewer than the unknowns counted above: the zero diagonal ties V of them. Exact for V >= 2r + 1.
    """
    return V + (V - 1) + r * (2 * V - 3 - r)


@checked
def attention_layer_unknowns(d: int, H: int, s: int) -> int:
    """H heads with W_h and P_h of rank s and c_h in the range of W_h, and the constant; d numbers per answer."""
    return H * (2 * s * (2 * d - s) + s) + d


@checked
def attention_layer_queries(
    d: int, H: int, s: int, *, spare: int, groups: int, rows: int, full: int, blocks: int
) -> int:
    """Vector queries of the layer design, one-token ones included; a query answers d numbers.

    d + 1 one-token queries; s + spare moves of each head's token; d for each group of value maps beyond the first;
    key directions in full, d / rows queries each, at `full` + 1 query tokens; `blocks` at each of the others.
    """
    return d + 1 + H * (s + spare) + (groups - 1) * d + (full + 1) * -(-d // rows) + (d - full) * blocks
