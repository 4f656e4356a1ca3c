"""Least squares of equations whose errors differ: each over its own, and what is left of them in the unknowns.

Logs of attention weights are known as well as the weights are large: of scores that lie far apart a few are known a
million times worse than most, and would be the error of every fit that takes them for equals.

Theory: docs/theory/attention-layer.md, "Layers of language models", turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Weighted:
    """x (n, ...) of A x = y (m, ...); error: root of the sum of the variances of one column of x, over the unit in
    which errors of equations are given; inverse (n, m): what was applied to y."""

    x: Array
    error: float
    inverse: Array


def weighted(A: Array, y: Array, errors: Array) -> Weighted:
    """x with A x = y, A (m, n), y (m, ...), every equation as good as its errors (m,)."""
    inverse = inverse_of(A, errors)
    return Weighted(np.tensordot(inverse, y, 1), float(np.linalg.norm(inverse * errors)), inverse)


def inverse_of(A: Array, errors: Array) -> Array:
    """(n, m): what `weighted` applies to the right-hand sides."""
    return np.asarray(np.linalg.pinv(A / errors[:, None], rcond=1e-14) / errors)
