"""From exact values: unknowns and query counts of every class. d dimension, r rank, H heads, m width, V vocabulary."""

from __future__ import annotations

import math

from unsoftmax.arguments import checked

NUCLEAR_NORM_CONSTANT = 4.0
"""Measurements per unknown of W with which the nuclear-norm program of Theorem 5.1 recovered every instance tried (the
theorem leaves its constant open); the transition from failure to success lies between 2 and 3."""


@checked
def single_head_unknowns(d: int) -> int:
    """Entries of W and v."""
    return d * d + d


@checked
def single_head_queries(d: int) -> int:
    """Theorem 4.1: d one-row queries for v, d^2 pair queries for W. Equal to the unknowns, so optimal."""
    return d + d * d


@checked
def affine_head_queries(d: int) -> int:
    """A head with key offset c and output constant: one query per unknown, d^2 + 2d + 1."""
    return d * d + 2 * d + 1


@checked
def low_rank_unknowns(d: int, r: int) -> int:
    """Degrees of freedom of a rank-r W, r(2d - r), and of v."""
    return r * (2 * d - r) + d


@checked
def low_rank_queries(d: int, r: int) -> int:
    """The cross scheme: d for v, rd for r columns, r(d - r) for the rows outside. Equal to the unknowns, so optimal."""
    return d + r * d + r * (d - r)


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


@checked
def rotary_layer_unknowns(d: int, H: int, G: int, s: int) -> int:
    """H heads of s dimensions that share keys and values in G groups, rotary positions, RMSNorm, no biases.

    One complex number per pair and group of keys, and one s x s matrix per group of values, do not show.
    """
    return s * d * (2 * G + 2 * H) - G * s - G * s * s + 1


@checked
def rotary_layer_queries(
    d: int, H: int, G: int, s: int, *, slots: int, last_slots: int, spare: int, tokens: int, extra: int, repeats: int
) -> int:
    """Vector queries of the phase "main", d numbers each, where tokens that write nothing exist (G s < d) and H s <= d.

    The table of sums with two Jacobians of H columns; H + spare cells for s - 1 tokens of the values; s + 2 query
    tokens or, of heads that share values and keys, `rotary_query_tokens` before blocks of `slots` tokens at two
    distances; further blocks, d + 1 + tokens tokens in all, before
    ceil(s G / H) + extra of them; `repeats` sequences or more at each of d + 1 query tokens.
    """
    sides, cells = (4, 4), 16
    while cells < H + sum(sides) + 3 or cells - 2 <= H:
        sides = (min(sides) + 1, max(sides))
        cells = sides[0] * sides[1]
    first = rotary_query_tokens(H, G, s)
    scores = _scores_queries(d, H, G, s, slots, last_slots, tokens, extra, repeats, first)
    return cells + 2 * H + (s - 1) * (H + spare) + scores


@checked
def rotary_query_tokens(H: int, G: int, s: int) -> int:
    """Query tokens before which the first blocks of tokens are read.

    A head alone shows its s key directions at s of them, and that there are no more at two more; the H / G heads of a
    group show them together at s G / H, with two or a quarter more, four at least: 64 directions in 72 rows are of a
    condition of 14 to 24 (60 draws), in 81, with the quarter, of 8 to 12.
    """
    return min(s + 2, max(4, -(-s * G // H) + 2, -(-5 * s * G // (4 * H))))


@checked
def overlapping_heads_queries(d: int, outputs: int, H: int) -> int:
    """Queries of the phase "main" that tell apart rotary heads whose ranks add up to more than d: d steps before each
    of H + 1 query tokens, and (H - 1) d longer tokens with half as many more as scores before two query tokens need.

    Keys and queries are read afterwards, and d steps were made before it was known that ranks overlap.
    """
    return (H + 1) * d + overlapping_longer_tokens(d, outputs, H)


@checked
def overlapping_query_tokens(d: int, H: int) -> int:
    """Query tokens that longer tokens stand before: two show apart what one does not, and have 2 H (d + 1) unknowns in
    their scores; one beyond 4500 of them, whose normal equations take 160 MB and seconds, and of two heads, whose
    values take fewer tokens than scores before two query tokens."""
    return 2 if H > 2 and 2 * H * (d + 1) <= 4500 else 1


@checked
def overlapping_longer_tokens(d: int, outputs: int, H: int) -> int:
    """Longer tokens of `overlapping_heads_queries`: the values of all but one head, and 3/2 of what scores need."""
    return (H - 1) * d + -(-3 * overlapping_query_tokens(d, H) * H * (d + 1) // (2 * outputs))


def _scores_queries(
    d: int, H: int, G: int, s: int, slots: int, last_slots: int, tokens: int, extra: int, repeats: int, first: int
) -> int:
    """Turns, keys and queries of `rotary_layer_queries`; `first` query tokens before the first blocks."""
    turns = -(-(s + 1) // (slots - 1))
    blocks = max(0, -(-(d + 1 + tokens) // slots) - turns)
    keys = blocks * min(first, -(-s * G // H) + extra)
    return 2 * first * turns + keys + (d + 1) * max(repeats, -(-s // last_slots))


@checked
def block_values_queries(d: int, r: int) -> int:
    """Queries of the phase "values" for the attention of a block whose heads write r dimensions of a token.

    d endless tokens for the readout, two rough maps of d, and six tokens that write nothing: a rough Jacobian and two
    Newton steps at six lengths each.
    """
    return 3 * d + 6 + 1 + 6 * r + 2 * 6 * 6 + 6


@checked
def block_queries(
    d: int,
    H: int,
    G: int,
    s: int,
    *,
    slots: int,
    last_slots: int,
    tokens: int,
    extra: int,
    repeats: int,
    final_norm: bool = False,
) -> int:
    """Queries of the phase "main" for the attention of a block, where G s < d and H s <= d, if nothing is repeated.

    Answers are extrapolated from three lengths of the last token (fairly) or six (fully), less those of that token
    alone. Four tables of 36 cells fairly, one or two of them fully; s + 1 tokens, then s better ones, before H + 8
    cells of each; d + 1 tokens before two cells, fairly and fully; and turns, keys and queries as for a layer.
    """
    fair, full, cells, tables = 3, 6, 36, 2 if final_norm else 1
    jacobians = 2 * (H + 1)
    read = 4 * ((cells + 1) * fair + jacobians + 1) + tables * ((cells + 1) * full + jacobians)
    spans = tables * min(H + 8, cells) * ((s + 1) * fair + s * full)
    fits = 2 * (d + 1) * (fair + full)
    scores = _scores_queries(d, H, G, s, slots, last_slots, tokens, extra, repeats, s + 2)
    return read + spans + fits + full * (scores + (s + 2) + (d + 1))
