"""W from bilinear readings z_i'W q_b = s: least squares without forming the d^2 columns.

Theory: docs/theory/explanations.md, "Explanations", statement.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsmr

from unsoftmax.probes.base import Array

_DIGITS = 1e-10
"""What one pass leaves of the gradient, relative: three passes at 1e-7 left errors of 1e-10 in W, at 1e-10 none."""

_PASSES = 3
"""Passes: the first two reach rounding, the third takes off what their own rounding left."""


_DENSE = 1300
"""Unknowns up to which the columns are formed: a hundredth of a second, where iterations would be slow to converge."""


def solve_bilinear(Z: Array, q: Array, s: Array, weights: Array) -> tuple[Array, float]:
    """W (d, d) minimising sum weights^2 (z'W q - s)^2 over Z (n, m, d), q (n, d), s and weights (n, m).

    Also the root mean square of the weighted misfit. Tokens are scaled to unit mean square first.
    """
    n, m, d = Z.shape
    scale = float(np.sqrt(np.mean(Z**2) * np.mean(q**2)))
    Z, q = Z / np.sqrt(np.mean(Z**2)), q / np.sqrt(np.mean(q**2))

    def forward(x: Array) -> Array:
        return np.asarray(((Z @ (q @ x.reshape(d, d).T)[:, :, None])[:, :, 0] * weights).ravel())

    def backward(r: Array) -> Array:
        pulled = ((r.reshape(n, m) * weights)[:, None, :] @ Z)[:, 0]
        return np.asarray((pulled.T @ q).ravel())

    A = LinearOperator((n * m, d * d), matvec=forward, rmatvec=backward, dtype=np.float64)
    target = (s * weights).ravel()
    x = np.zeros(d * d)
    if d * d <= _DENSE:
        design = (Z[:, :, :, None] * q[:, None, None, :]).reshape(n * m, d * d) * weights.reshape(-1, 1)
        x = np.linalg.lstsq(design, target, rcond=None)[0]
        return x.reshape(d, d) / scale, float(np.sqrt(np.mean((forward(x) - target) ** 2)))
    for _ in range(_PASSES):
        x = x + lsmr(A, target - forward(x), atol=_DIGITS, btol=_DIGITS, conlim=1e10, maxiter=40 * d)[0]
    misfit = float(np.sqrt(np.mean((forward(x) - target) ** 2)))
    return x.reshape(d, d) / scale, misfit
