"""Queries of a comparison with a reference."""

from __future__ import annotations

from unsoftmax.arguments import checked

_BANDS = (3, 13, 61, 251)
"""Least lengths of the bands from which longer sequences are drawn, two of each."""


@checked
def comparison_queries(longest: int = 512, copies: int = 1) -> int:
    """Phase "detect": 4 sequences three times, 24 near ties (times `copies`, where a small change must be seen), 8
    single tokens, and two sequences in each band of lengths up to `longest`."""
    bands = sum(low <= longest for low in _BANDS)
    return 12 + 24 * copies + 8 + 2 * (bands if longest > 2 else int(longest == 2))


@checked
def low_rank_change_unknowns(d: int, r: int) -> int:
    """A change of W of rank r: r(2d - r) numbers."""
    return r * (2 * d - r)
