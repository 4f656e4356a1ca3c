"""What noise leaves in a least squares fit of many answers: how far v and W may be off, and how large the noise is.

Theory: docs/theory/approximate.md, "Noise that is not told", stochastic noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from unsoftmax.probes.base import Array
from unsoftmax.solvers.blocks import SHARED, Blocks, Linearised, Singles, conjugate_gradients

_RARELY = 1e-4
"""Probability with which a stated quantile is exceeded."""

_DENSE = 300
"""Unknowns up to which the law of the error is computed from all singular values (d <= 16); it is drawn beyond."""

_DRAWS = 48
"""Draws of the error where its law is not computed: their mean square is right to about a tenth of its root, 1 / sqrt(2
* 48)."""

_USED_BLOCKS = 16
"""Random designs that stand for all, so that memory does not grow with the records; each has many rows, and their mean
is right to a tenth or better."""

_NONLINEAR = 1.05
"""What is beyond first order in an error, of which the bound is the once-in-10^4 quantile."""


@dataclass(frozen=True)
class Spread:
    """What errors of deviation 1 in the answers leave in W and in v: quantiles of ||W^ - W||_F and of ||v^ - v||."""

    W: float
    v: float


def spread(singles: Singles, batches: Sequence[Blocks], v: Array, W: Array) -> Spread:
    """Quantiles once exceeded in 10^4, from some of the designs standing for all."""
    d = len(v)
    total = sum(len(batch.y) for batch in batches)
    step = max(1, total // max(_USED_BLOCKS, math.ceil(3 * _DENSE / (d * d + d)) if d < 8 else 0))
    thin = [batch.thinned(step) for batch in batches]
    kept = sum(len(batch.y) for batch in thin)
    few = Singles(singles.X[::step], singles.sign[::step], singles.y[::step])
    scale = math.sqrt(kept / total)
    now = Linearised(few, thin, np.zeros(SHARED), v, W)
    if d * d + d + SHARED <= _DENSE:
        rows = now.rows()
        # The smallest singular value of a direction nobody probed is rounding: its error is without bound.
        _, s, V = np.linalg.svd(rows, full_matrices=False)
        if not s[-1] > 1e-13 * s[0]:
            return Spread(math.inf, math.inf)
        root = V.T / s
        of_v = np.linalg.svd(root[SHARED : SHARED + d], compute_uv=False) ** 2
        of_W = np.linalg.svd(root[SHARED + d :], compute_uv=False) ** 2
        return Spread(_NONLINEAR * scale * _quantile(of_W), _NONLINEAR * scale * _quantile(of_v))
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(_DRAWS):
        noise = [rng.standard_normal(r.shape) for r in now.residuals]
        draws.append(conjugate_gradients(now, now.adjoint(noise), 0.0, exact=1e-3))
    errors = np.array(draws)
    return Spread(
        _NONLINEAR * scale * _drawn_quantile((errors[:, SHARED + d :] ** 2).sum(axis=1)),
        _NONLINEAR * scale * _drawn_quantile((errors[:, SHARED : SHARED + d] ** 2).sum(axis=1)),
    )


def _quantile(weights: Array) -> float:
    """Root of the quantile of sum_i weights_i z_i^2: the law a + b chi^2_h of the same mean, variance and skewness."""
    first, second, third = (float((weights**k).sum()) for k in (1, 2, 3))
    if third == 0:
        return 0.0
    h = second**3 / third**2
    return math.sqrt(first + third / second * (2 * float(gammaincinv(h / 2, 1 - _RARELY)) - h))


def _drawn_quantile(squares: Array) -> float:
    mean = float(squares.mean())
    if mean == 0:
        return 0.0
    # Of a few draws the number of effective squares is known to about a quarter.
    effective = max(1.0, 0.75 * 2 * mean**2 / float(squares.var(ddof=1)))
    return math.sqrt(mean * 2 * float(gammaincinv(effective / 2, 1 - _RARELY)) / effective)


def deviation_at_most(deviation: float, freedom: float) -> float:
    """What the true deviation rarely exceeds, if it was estimated from `freedom` independent residuals."""
    return deviation * math.sqrt(freedom / (2 * float(gammaincinv(freedom / 2, _RARELY))))
