"""Closed forms: unknowns and query counts, one function per statement. d dimension, r rank, H heads, m width."""

from __future__ import annotations

import math


def single_head_unknowns(d: int) -> int:
    """Entries of W and v."""
    return d * d + d


def single_head_queries(d: int) -> int:
    """Theorem 4.1: d one-row queries for v, d^2 pair queries for W. Equal to the unknowns, so optimal."""
    return d + d * d


def low_rank_unknowns(d: int, r: int) -> int:
    """Degrees of freedom of a rank-r W, r(2d - r), and of v."""
    return r * (2 * d - r) + d


def low_rank_queries(d: int, r: int) -> int:
    """The cross scheme: d for v, rd for r columns, r(d - r) for the rows outside. Equal to the unknowns, so optimal."""
    return d + r * d + r * (d - r)


def relu_network_unknowns(d: int, m: int, bias: bool = False) -> int:
    """Neurons w_k A_k up to positive scaling: d numbers each (d + 1 with a hidden bias, plus the output bias)."""
    return m * (d + 1) + 1 if bias else m * d


def transformer_unknowns(d: int, m: int, bias: bool = False) -> int:
    """W and the network behind it."""
    return d * d + relu_network_unknowns(d, m, bias)


def transformer_queries(d: int, network_queries: int) -> int:
    """Section 4.1: the network on one-row queries, then Theorem 4.1 on the odd part at two queries each."""
    return network_queries + 2 * single_head_queries(d)


def multi_head_unknowns(d: int, H: int, r: int | None = None) -> int:
    """H generic heads, of rank r if given."""
    return H * (single_head_unknowns(d) if r is None else low_rank_unknowns(d, r))


def orthogonal_heads_queries(dims: list[int]) -> int:
    """Proposition C.2: Theorem 4.1 inside each known subspace of dimension d_h."""
    return sum(single_head_queries(d_h) for d_h in dims)


def membership_bits(accuracy: float) -> int:
    """Whole bits per number: log2(1 / accuracy) rounded down; the rest is the bracket's."""
    return max(1, math.floor(math.log2(1 / accuracy)))


def membership_floor(d: int, accuracy: float, r: int | None = None) -> float:
    """One bit per label: no learner knows all unknowns (the norm of v is not one) to `accuracy` with fewer queries."""
    unknowns = single_head_unknowns(d) if r is None else low_rank_unknowns(d, r)
    return (unknowns - 1) * math.log2(1 / accuracy)


def membership_finest_accuracy(d: int, eps: float) -> float:
    """What rounding leaves: labels near the boundary are right to about eps sqrt d in the share of attention."""
    return 40 * math.sqrt(d) * eps
