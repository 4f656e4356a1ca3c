"""What averaging costs, as far as it can be said before the first query.

Theory: docs/theory/approximate.md, "Noise that is not told", stochastic noise.
"""

from __future__ import annotations

import math

from unsoftmax import theory
from unsoftmax.errors import InvalidArgument
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.spec import OracleSpec


def least_blocks(d: int) -> int:
    """Blocks that leave 16 residuals as witnesses of the noise: two blocks of few tokens would agree by chance."""
    return 1 + math.ceil(18 / (d * d + d))


def averageable(spec: OracleSpec) -> bool:
    """Whether more queries buy accuracy: without a norm limit longer tokens do, and behind a link noise is biased."""
    return spec.link is None and math.isfinite(spec.domain.norm_limit)


def planned_blocks(spec: OracleSpec, accuracy: float, value_norm: float) -> int:
    """Blocks that even a small W takes, as far as the tolerance is declared."""
    least = least_blocks(spec.dim)
    if spec.tolerance == 0:
        return least
    blocks = theory.averaging_blocks(spec.dim, spec.tolerance, spec.domain.norm_limit, value_norm, accuracy)
    return max(affordable(blocks, spec.dim, accuracy), least)


def most_queries(spec: OracleSpec, accuracy: float, value_norm: float, W_bound: float) -> int:
    """Queries that suffice for every W up to `W_bound`; refused if nobody would ask so many."""
    d, limit = spec.dim, spec.domain.norm_limit
    most = theory.averaging_queries(d, spec.tolerance, limit, value_norm, accuracy, W_bound)
    block = theory.approximate_queries(d)
    return block * max(affordable(most / block, d, accuracy), 2 * least_blocks(d))


def affordable(blocks: float, d: int, accuracy: float) -> int:
    """The number of blocks as an integer, or a refusal that says what it would cost."""
    if not blocks * theory.approximate_queries(d) <= SINGLE.most_queries:
        how_many = f"{blocks:.2g}" if math.isfinite(blocks) else "more than can be counted"
        raise InvalidArgument(
            f"accuracy={accuracy:g} would take blocks of {d + d * d} queries, {how_many} of them, at this noise and "
            "length; ask for less accuracy, or allow longer tokens (the error falls with the cube of max_norm)."
        )
    return math.ceil(blocks)
