"""Stacks of attention layers: unknowns and queries. L layers of H heads, all of rank r, tokens seen in D dimensions."""

from __future__ import annotations

import math

from unsoftmax.arguments import checked


@checked
def attention_stack_unknowns(d: int, L: int, H: int, r: int, rms: bool = False) -> int:
    """Heads on normalised tokens, W_h with c_h in its range and P_h of rank r, a constant per layer, and eps.

    A LayerNorm leaves D = d - 1 dimensions of a token, an RMSNorm all d.
    """
    D = d if rms else d - 1
    return L * H * (r * (2 * D + 1 - r) + r * (D + d - r)) + L * d + 1


@checked
def attention_stack_queries(d: int, L: int, H: int, r: int, rms: bool = False) -> int:
    """What learners.AttentionStack asks of a stack without networks if nothing has to be repeated, verification aside.

    3 for the norm, 1 for positions, 2 for causality; D + 3 single tokens; three k at D + 4 settings or more for the
    algebra; r + 1 rays in full, the others on r + 2 directions, two queries at -delta each; order at two lengths; 1.25
    times the unknowns over what an answer tells, and 6 for eps.
    """
    D, n = d if rms else d - 1, L * H
    apart = 3 * max(D + 4, math.ceil(1.5 * n * (n + 3) / 6))
    full = min(max(3, r + 1), D - 1)
    rays = full * (D + n + 8) + (D - 1 - full) * (1 + min(r + 2, D - 1) + n + 8) + 2
    order = 2 * (int(1.4 * ((n * n + n * min(D, 2 * r + 1)) / d + 1)) + 4)
    polish = math.ceil(1.25 * attention_stack_unknowns(d, L, H, r, rms) / min(d, n * r)) + 6
    return 4 + 2 * (L > 1) + D + 3 + apart + rays + order + polish


@checked
def plain_stack_unknowns(d: int, L: int, H: int, r: int) -> int:
    """Heads of a stack without norms, W_h with c_h in its range and P_h of rank r, and one constant for all layers."""
    return L * H * (r * (2 * d + 1 - r) + r * (2 * d - r)) + d


@checked
def plain_stack_queries(d: int, L: int, H: int, r: int) -> int:
    """What learners.AttentionStack asks of a stack without norms if nothing has to be repeated, verification aside.

    4 one-token queries, 2 for causality; two scans that tell m = (1 + H)^L - 1 paths by m + 2 responses, the first in
    steps of 4 from 6; d per path, 2 to see that none is missing; 6 for the tokens' length; d (d + 1) log ratios per
    head, 15 % more and 5 sequences.
    """
    m = (1 + H) ** L - 1
    first = min(6 + 4 * max(0, math.ceil((m - 4) / 4)), d + 2)
    rank = r if r == d else 0.85 * r
    others = max(1, min([int(0.8 * d / m)] + [int(rank / (1 + H) ** below) for below in range(L)]))
    soft = math.ceil(1.15 * d * (d + 1) / others) + 5
    return 4 + 2 * (L > 1) + 1 + first + 1 + m + 2 + m * d + 2 + 6 + soft
