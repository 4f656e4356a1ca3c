"""Heads with other kernels than the exponential. d dimension."""

from __future__ import annotations

from unsoftmax.arguments import checked
from unsoftmax.errors import InvalidArgument

TABLE = 50
"""Queries that show the kernel: 48 points of a line and two for its slope."""

POWERS = 10
"""Queries that show which power of the score a kernel is."""


@checked
def kernel_head_queries(d: int) -> int:
    """d for v, d^2 pairs for W, and the table of the kernel."""
    return d + d * d + TABLE


@checked
def power_head_queries(d: int, kernel: str, normalised: bool = False) -> int:
    """Weights that are powers of the score: d^2 for the directions of W, the table, and what parts sizes and values.

    Plain sums: 2 (d - 1) for the sizes of rows. Normalised: d for v, twice for a ReLU, and d - 1 for the sizes of
    columns. The square hides signs: every direction and size is asked once more.
    """
    if kernel not in ("linear", "quadratic", "relu") and not (isinstance(kernel, str) and kernel.startswith("relu^")):
        raise InvalidArgument(f"`kernel` must be linear, quadratic, relu or relu^2, ... (got {kernel!r}).")
    square = kernel == "quadratic"
    if not normalised:
        return d * d * (2 if square else 1) + POWERS + (3 if square else 2) * (d - 1)
    values = 2 * d if kernel.startswith("relu") else d + 1
    return values + (d * d + d - 1) * (2 if square else 1) + POWERS
