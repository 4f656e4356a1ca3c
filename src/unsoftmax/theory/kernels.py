"""Heads with other kernels than the exponential. d dimension."""

from __future__ import annotations

from unsoftmax.arguments import checked

TABLE = 50
"""Queries that show the kernel: 48 points of a line and two for its slope."""


@checked
def kernel_head_queries(d: int) -> int:
    """d for v, d^2 pairs for W, and the table of the kernel."""
    return d + d * d + TABLE
