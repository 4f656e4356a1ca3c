"""Linear systems whose matrix is a multiple of an orthogonal one up to the rounding of a grid.

Theory: docs/theory/reading.md, "Sums of learned parts", bases and grids.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.probes.base import Array

_MOST = 40
"""Refinements at most. Each at least halves the step or ends the loop, and 2^-40 of a first step that the grid's
rounding leaves is below rounding."""


def solve_orthogonal(A: Array, b: Array, refinements: int = 2) -> Array:
    """x with A x = b for A (d, d) near a multiple of an orthogonal matrix, b (d, ...).

    The transpose is the inverse up to the grid's rounding; refinement removes the rest, however coarse the grid.
    Elimination would lose two digits here: orthogonal matrices are among those whose pivots grow.
    """
    inverse = A.T / (np.linalg.norm(A) ** 2 / len(A))
    x = inverse @ b
    last = np.inf
    for i in range(_MOST):
        step = inverse @ (b - A @ x)
        x, size = x + step, float(np.linalg.norm(step))
        if i + 1 >= refinements and size <= 1e-15 * float(np.linalg.norm(x)):
            break
        if i + 1 >= refinements and not size < 0.5 * last:
            # Rounding is all that is left, or the grid is so coarse that the transpose is no inverse any more.
            return np.asarray(x if size <= 1e-12 * float(np.linalg.norm(x)) else _solved(A, b))
        last = size
    return np.asarray(x)


def _solved(A: Array, b: Array) -> Array:
    Q, R = np.linalg.qr(A)
    return np.asarray(np.linalg.solve(R, Q.T @ b))
