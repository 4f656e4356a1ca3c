"""Soft-capped scores, c tanh(s / c): the cap from scores of a token and of half of it, and queries behind a cap.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import STEPS

_LARGEST = 1e5
"""Caps beyond this many units change scores of order one by less than rounding does."""


def cap_of(whole: Array, half: Array) -> float | None:
    """c with c atanh(whole / c) = 2 c atanh(half / c), for scores of tokens and of their halves; None if none fits."""
    top = max(float(np.abs(whole).max()), float(np.abs(half).max())) * (1 + 1e-9)

    def gap(u: float) -> float:
        weights = np.sign(whole) * whole**2
        return float((weights * (np.arctanh(whole * u) - 2 * np.arctanh(half * u)) / u).sum())

    low, high = 1 / _LARGEST, (1 - 1e-12) / top
    return None if gap(low) * gap(high) > 0 else float(1 / brentq(gap, low, high, xtol=1e-16, rtol=1e-15))


def unbent(t: Array, cap: float) -> Array:
    """Scores before the cap."""
    return np.asarray(cap * np.arctanh(np.clip(t / cap, -1 + 1e-15, 1 - 1e-15)))


def uncapped(rows: Array, own: Array, right: Array, start: Array, cap: float) -> Array:
    """a (s, n) with cap(rows a) - cap(own a) = right (m, n), every column alone, by Gauss-Newton from `start`."""
    out = start.copy()
    for j in range(right.shape[1]):
        a = start[:, j]
        for _ in range(STEPS):
            u, v = np.tanh(rows @ a / cap), np.tanh(own @ a / cap)
            gap = right[:, j] - cap * (u - v)
            J = rows * (1 - u * u)[:, None] - own * (1 - v * v)[:, None]
            step = np.linalg.lstsq(J, gap, rcond=None)[0]
            a = a + step
            if np.linalg.norm(step) <= 1e-15 * np.linalg.norm(a):
                break
        out[:, j] = a
    return out
