"""Linear systems whose matrix is a multiple of an orthogonal one up to the rounding of a grid."""

from __future__ import annotations

import numpy as np

from unsoftmax.probes.base import Array


def solve_orthogonal(A: Array, b: Array, refinements: int = 2) -> Array:
    """x with A x = b for A (d, d) near a multiple of an orthogonal matrix, b (d, ...).

    The transpose is the inverse up to the grid's rounding; refinement removes the rest. Elimination would lose two
    digits here: orthogonal matrices are among those whose pivots grow.
    """
    inverse = A.T / (np.linalg.norm(A) ** 2 / len(A))
    x = inverse @ b
    for _ in range(refinements):
        x = x + inverse @ (b - A @ x)
    return np.asarray(x)
