"""Answers that explain themselves: queries for heads. d dimension, r rank, H heads, N tokens of a sequence."""

from __future__ import annotations

import math

from unsoftmax.arguments import checked


@checked
def gradient_head_queries(d: int) -> int:
    """A full head from values and gradients: one query for v, one pair for W along each of d directions."""
    return d + 1


@checked
def gradient_low_rank_queries(d: int, r: int) -> int:
    """A head of known rank: one query for v, r + 1 pairs that show W from both sides."""
    return 1 + min(d, r + 1)


@checked
def gradient_heads_queries(d: int) -> int:
    """Several heads from values and gradients: one query for the sum of all v, one for W_h q of all heads along each of
    d directions; their number does not enter as long as 2 H <= d."""
    return d + 1


@checked
def attention_map_queries(d: int, H: int, N: int) -> int:
    """Full heads from attention weights: H (N - 1) of the H d^2 unknowns of W a query, one of the H d unknowns of v.

    5 % more than either, and four, so that least squares is well conditioned and has something left to check.
    """
    return math.ceil(1.05 * max(d * d / (N - 1), H * d)) + 4


@checked
def attention_map_low_rank_queries(d: int, r: int, N: int) -> int:
    """One head of rank r: r + 1 columns of W in full, the other d - r - 1 one query each."""
    columns = min(d, r + 1)
    return columns * math.ceil(d / (N - 1)) + d - columns
