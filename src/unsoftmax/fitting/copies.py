"""Which records ask the same: equal query tokens, and equal other tokens in whatever order.

No class here knows an order, so that such records say one thing. Answers to them show noise, but neither determine
more unknowns nor test a fit of one another.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.fitting.log import Log
from unsoftmax.probes.base import Array


def distinct(log: Log) -> tuple[Array, Array]:
    """The first record of every different sequence (k,), and for each record which of the k it is (n,)."""
    seen: dict[tuple[int, ...], int] = {}
    first: list[int] = []
    number = np.empty(len(log), dtype=np.int64)
    for i, (start, length) in enumerate(zip(log.starts, log.lengths, strict=True)):
        rows = log.tokens[start : start + length] + 0  # -0 becomes 0
        names = rows.tolist() if rows.ndim == 1 else [hash(row.tobytes()) for row in rows]
        key = (names[-1], *sorted(names[:-1]))
        if key not in seen:
            seen[key] = len(first)
            first.append(i)
        number[i] = seen[key]
    return np.array(first), number
