"""The cap c of numbers c tanh(l / c), found by what it hides: only the right c gives l the low rank it has.

Theory: docs/theory/output-layer.md, "The output layer", a cap.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from unsoftmax.probes.base import Array

_GRID = 48
"""Caps tried on a logarithmic grid of c / max|y| - 1 before the best is refined."""

_NEAREST = 1e-6
"""Least c / max|y| - 1: beyond, the largest answers are saturated to a millionth and say nothing of l."""

_FARTHEST = 1e2
"""Largest c / max|y| - 1: a cap a hundred times beyond the answers bends them by 3e-5 of their size."""


def uncapped(y: Array, c: float) -> Array:
    """l with c tanh(l / c) = y."""
    return np.asarray(c * np.arctanh(y / c))


def find_cap(y: Array, tail: int, largest: float) -> float:
    """The c > `largest` that makes the last `tail` singular values of l (n, m) smallest beside its norm."""

    def tail_of(x: float) -> float:
        l = uncapped(y, largest * (1.0 + np.exp(x)))
        s = np.linalg.svd(l, compute_uv=False)
        return float(np.log(s[-tail:] / s[0] + 1e-300).mean())

    grid = np.linspace(np.log(_NEAREST), np.log(_FARTHEST), _GRID)
    heights = [tail_of(x) for x in grid]
    best = int(np.argmin(heights))
    ends = grid[max(0, best - 1)], grid[min(_GRID - 1, best + 1)]
    x = minimize_scalar(tail_of, bounds=ends, method="bounded", options={"xatol": 1e-13}).x
    return largest * (1.0 + float(np.exp(x)))
