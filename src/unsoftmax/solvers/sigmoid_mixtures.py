"""Heads that are known as a family, told apart by their scores: logits of weights are affine in the token.

Of k heads that share values, answers show k mixtures b = a T of their weights a (1 where all weights are 1). A column
c of T^-1, which adds up to 1, gives one head's weight b c, and logit(b c) is affine in the token before every query
token: a small fit of k - 1 numbers, from many starts; affine parts are eliminated.

Theory: docs/theory/attention-layer.md, "Layers of language models", heads that overlap.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.probes.base import Array

_STARTS = 150
"""Starts for every head of a family, at most: most lead to one of two or three heads, every tenth to one of four and
every thirtieth to one of eight."""

_STEPS = 40
"""Steps of Levenberg-Marquardt at most from one start: ten are usual."""

_INSIDE = 1e-5
"""Weights nearer to 0 or 1 than this, or beyond, are taken to be this far: mixtures are known to 1e-5."""

_SPARE = 10
"""Tokens before every query token beyond the unknowns of its affine part, for each head of the family and as many for
all: more say the same again."""

_SAME = 1e-3
"""Difference of two solutions' weights, root mean square, up to which they are one."""


def unmixed(read: Array, wide: Array, index: Array, misfit: float) -> Array | None:
    """C (k, k): read (n, k) @ C are the weights of the k heads of a family, before query tokens `index` (n,) with
    displacements and a constant `wide` (n, d + 1). None unless k different heads fit to `misfit` of their logits."""
    k, enough = read.shape[1], wide.shape[1] + _SPARE * (read.shape[1] + 1)
    rows = [np.flatnonzero(index == q)[:enough] for q in range(int(index.max()) + 1)]
    spaces = [np.linalg.qr(wide[some])[0] for some in rows]
    rng, found = np.random.default_rng(k), list[Array]()
    varying = np.cov(read.T)
    U, sizes, _ = np.linalg.svd(varying)
    still = np.linalg.solve(varying + np.finfo(float).eps * sizes[0] * np.eye(k), np.ones(k))
    for number in range(_STARTS * k):
        # A weight that varies by 0.05 to 0.25, along a direction of mixtures that are brought to vary alike; in turn
        # any that is not far from their mean.
        g, size = np.asarray(rng.standard_normal(k)), rng.uniform(0.05, 0.25)
        start = (U / np.sqrt(sizes)) @ (g / np.linalg.norm(g)) * size
        start = start + (1 - start.sum()) * still / still.sum() if number % 2 else 1 / k + 6 * size * (g - g.mean())
        c, left = _fitted(read, rows, spaces, start)
        weights = read @ c
        known = any(np.sqrt(np.mean((weights - read @ other) ** 2)) < _SAME for other in found)
        if left < misfit and not known and ((weights > 0) & (weights < 1)).mean() > 0.9:
            found.append(c)
        if len(found) == k:
            C = np.stack(found, axis=1)
            # What the last one leaves of 1 must be what all of them leave together.
            return C if np.linalg.cond(C) < 1e6 else None
    return None


def _fitted(read: Array, rows: list[Array], spaces: list[Array], c: Array) -> tuple[Array, float]:
    """c (k,) that adds up to 1, by Levenberg-Marquardt; what is left of the logits, relative to how they vary."""
    # Directions that keep the sum.
    k = len(c)
    free = np.linalg.qr(np.eye(k) - 1 / k)[0][:, : k - 1]
    damping, (left, r, J) = 1e-2, _residual(read, rows, spaces, c)
    for _ in range(_STEPS):
        A = J @ free
        G = A.T @ A
        step = -free @ np.linalg.solve(
            G + damping * (np.diag(np.diag(G)) + 1e-12 * np.trace(G) * np.eye(k - 1)), A.T @ r
        )
        new = _residual(read, rows, spaces, c + step)
        if new[0] < left:
            gained, c, (left, r, J), damping = left - new[0], c + step, new, damping / 4
            if gained < 1e-9 * left or left < 1e-13:
                break
        else:
            damping *= 5
            if damping > 1e8:
                break
    return c, left


def _residual(read: Array, rows: list[Array], spaces: list[Array], c: Array) -> tuple[float, Array, Array]:
    """What is left of the logits over how they vary; residuals (n,) and their Jacobian (n, k), so scaled."""
    weights = np.clip(read @ c, _INSIDE, 1 - _INSIDE)
    logits = np.log(weights / (1 - weights))
    slope = read / (weights * (1 - weights))[:, None]
    parts, slopes, spread = [], [], 0.0
    for some, Q in zip(rows, spaces, strict=True):
        parts.append(logits[some] - Q @ (Q.T @ logits[some]))
        slopes.append(slope[some] - Q @ (Q.T @ slope[some]))
        spread += float(((logits[some] - logits[some].mean()) ** 2).sum())
    size = np.sqrt(max(spread, 1e-300))
    r, J = np.concatenate(parts) / size, np.vstack(slopes) / size
    return float(np.linalg.norm(r)), r, J
