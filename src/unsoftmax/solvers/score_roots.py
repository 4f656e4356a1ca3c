"""One unknown score per head: the curve of its weights must lie in the row space of the answers.

A token x stands in cells whose other tokens are known: alpha_h(s) = e^s / (e^s + E_h) over the cells, with one unknown
s per head. The answers are P_h x alpha_h summed over heads, so their row space has H dimensions and each head's curve
meets it at its score: a scalar root per head.

Theory: docs/theory/attention-layer.md, "Layers of language models", values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array

_GRID = np.exp(np.linspace(-14, 14, 1121))
"""Scores looked at first: e^s from 1e-6 to 1e6 in steps of 0.025, finer than any dip of a curve is wide."""

_DIPS = 8
"""Dips of the curve that a root is looked for in, deepest first: a curve comes close to the space more than once, but
rarely often."""

_STEPS = 30
"""Gauss-Newton steps at most, of 0.2 in the score at most each: a dip starts within 0.025 of its root, and most end
after a few."""


@dataclass(frozen=True, eq=False)
class Written:
    """columns (outputs, H): P_h x; exps (H,): e^s; residual: worst distance of a head's curve from the row space."""

    columns: Array
    exps: Array
    residual: float


def score_roots(Y: Array, whole: Array | None, E: Array, shares: Array) -> Written:
    """Y (cells, outputs) answers, E (H, cells) exponentials of the cells' other tokens together.

    whole (outputs,): one more answer, in which every head's weight is `shares` (H, 1); None if there is none, with
    shares (H, 0).
    """
    H = len(E)
    seen = (Y if whole is None else np.vstack([Y, whole])).T
    outside = np.linalg.svd(seen, full_matrices=True)[2][H:].T
    exps, worst = np.zeros(H), 0.0
    for h in range(H):
        exps[h], miss = _root(E[h], shares[h], outside)
        worst = max(worst, miss)
    alpha = np.column_stack([exps[:, None] / (exps[:, None] + E), shares])
    columns = np.linalg.lstsq(alpha.T, seen.T, rcond=None)[0].T
    return Written(columns, exps, worst)


def _root(E: Array, share: Array, outside: Array) -> tuple[float, float]:
    """e^s at which the curve comes closest to the row space, and how close."""
    curve = np.column_stack([_GRID[:, None] / (_GRID[:, None] + E), np.tile(share, (len(_GRID), 1))])
    r = np.linalg.norm(curve @ outside, axis=1) / np.linalg.norm(curve, axis=1)
    below = np.concatenate([[True], r[1:] <= r[:-1]]) & np.concatenate([r[:-1] <= r[1:], [True]])
    dips = np.flatnonzero(below)
    best = (np.inf, 0.0)
    # A curve can come close to the space more than once.
    for i in dips[np.argsort(r[dips], kind="stable")][:_DIPS]:
        s = np.log(_GRID[i])
        for _ in range(_STEPS):
            alpha = np.exp(s) / (np.exp(s) + E)
            v, dv = np.append(alpha, share) @ outside, np.append(alpha * (1 - alpha), 0 * share) @ outside
            step = float(np.clip(-(v @ dv) / (dv @ dv), -0.2, 0.2))
            s += step
            if abs(step) < 1e-15:
                break
        point = np.append(np.exp(s) / (np.exp(s) + E), share)
        best = min(best, (float(np.linalg.norm(point @ outside) / np.linalg.norm(point)), float(s)))
    return float(np.exp(best[1])), best[0]
