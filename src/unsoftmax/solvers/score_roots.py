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
from unsoftmax.solvers.gauss_newton import STEPS
from unsoftmax.solvers.singular import svd

_GRID = np.linspace(-14, 14, 1121)
"""Scores looked at first: e^s from 1e-6 to 1e6 in steps of 0.025, a third of what most dips of a curve are wide."""

_FINE = 64
"""Scores looked at next, on either side of a dip as far as its neighbours: a curve that nearly touches the space has a
root and a mere dip within 0.005 of each other, which one step of the grid hides (measured)."""

_DIPS = 8
"""Dips of a curve that a root is looked for in, deepest first: a curve comes close to a space more than once, but
rarely often."""


@dataclass(frozen=True, eq=False)
class Written:
    """columns (outputs, H): P_h x; exps (H,): e^s; residual: worst distance of a head's curve from the row space;
    errors (H,): relative errors of the columns over that of the answers."""

    columns: Array
    exps: Array
    residual: float
    errors: Array


def score_roots(Y: Array, whole: Array | None, E: Array, shares: Array) -> Written:
    """Y (cells, outputs) answers, E (H, cells) exponentials of the cells' other tokens together.

    whole (outputs,): one more answer, in which every head's weight is `shares` (H, 1); None if there is none, with
    shares (H, 0).
    """
    H = len(E)
    seen = (Y if whole is None else np.vstack([Y, whole])).T
    outside = svd(seen, full_matrices=True)[2][H:].T
    exps, worst = np.zeros(H), 0.0
    for h in range(H):
        exps[h], miss = _root(E[h], shares[h], outside)
        worst = max(worst, miss)
    alpha = np.column_stack([exps[:, None] / (exps[:, None] + E), shares])
    inverse = np.linalg.pinv(alpha.T)
    columns = (inverse @ seen.T).T
    lengths, size = np.linalg.norm(columns, axis=0), float(np.linalg.norm(seen, axis=0).max())
    split = np.linalg.norm(inverse, axis=1) * size / np.maximum(lengths, 1e-300)
    # A score is known as its curve is in the row space, and its column as the score.
    slopes = np.column_stack([alpha[:, : E.shape[1]] * (1 - alpha[:, : E.shape[1]]), 0 * shares]) @ outside
    curves = np.linalg.norm(np.linalg.pinv(columns), axis=1) * size
    errors = np.hypot(split, curves / np.maximum(np.linalg.norm(slopes, axis=1), 1e-300))
    return Written(columns, exps, worst, errors)


def _root(E: Array, share: Array, outside: Array) -> tuple[float, float]:
    """e^s at which the curve comes closest to the row space, and how close."""
    best = (np.inf, 0.0)
    width = _GRID[1] - _GRID[0]
    # A curve can come close to the space more than once.
    for dip in _dips(_GRID, E, share, outside):
        for s in _dips(np.linspace(dip - width, dip + width, 2 * _FINE + 1), E, share, outside):
            best = min(best, _descended(float(s), E, share, outside))
    return float(np.exp(best[1])), best[0]


def _dips(scores: Array, E: Array, share: Array, outside: Array) -> Array:
    """Scores at which the curve comes closer to the row space than at their neighbours, the closest first."""
    odds = np.exp(scores)[:, None]
    curve = np.column_stack([odds / (odds + E), np.tile(share, (len(scores), 1))])
    r = np.linalg.norm(curve @ outside, axis=1) / np.linalg.norm(curve, axis=1)
    return np.asarray(scores[deepest_dips(r)])


def deepest_dips(heights: Array) -> Array:
    """Where a curve (n,) is no higher than at its neighbours, the few lowest first."""
    falls = np.diff(heights)
    dips = np.flatnonzero(np.append(True, falls <= 0) & np.append(falls >= 0, True))
    return np.asarray(dips[np.argsort(heights[dips], kind="stable")][:_DIPS])


def _descended(s: float, E: Array, share: Array, outside: Array) -> tuple[float, float]:
    """Gauss-Newton from s, steps of 0.2 at most: how close the curve comes to the row space, and where it does."""
    alpha, miss = _miss(s, E, share, outside)
    step = np.inf
    for _ in range(STEPS):
        if abs(step) < 1e-15:
            break
        slope = np.append(alpha * (1 - alpha), 0 * share) @ outside
        step = float(np.clip(-(miss @ slope) / (slope @ slope), -0.2, 0.2))
        nearer = _miss(s + step, E, share, outside)
        # Where the curve nearly touches the space, a whole step leaps across the root, back and forth.
        while np.linalg.norm(nearer[1]) > np.linalg.norm(miss) and abs(step) >= 1e-15:
            step /= 2
            nearer = _miss(s + step, E, share, outside)
        s, (alpha, miss) = s + step, nearer
    return float(np.linalg.norm(miss) / np.linalg.norm(np.append(alpha, share))), s


def _miss(s: float, E: Array, share: Array, outside: Array) -> tuple[Array, Array]:
    """Weights at the score s, and what of the curve lies outside the row space."""
    alpha = np.exp(s) / (np.exp(s) + E)
    return alpha, np.append(alpha, share) @ outside
