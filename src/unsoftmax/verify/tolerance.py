"""Is a declared tolerance true? One-token answers are linear in the token: some v must explain all of them within it.

The learner's own answers count as well, since its v is they: every entry was read from one answer along a unit vector.

Theory: docs/theory/verification.md, "Noisy answers", tolerance.
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.inversion import Noise
from unsoftmax.probes.base import Array

_LARGEST = 64
"""Dimension above which a few fresh answers say nothing: each adds an unknown's worth of freedom at most."""


def least_share(v: Array, error_of_v: float, tokens: Array, y: Array, noise: Noise) -> float | None:
    """Least t such that some v* explains y (n,), asked with tokens (n, d), within t times their radius, and v likewise.

    Above 1 no v* does: the declared tolerance is exceeded. None where nothing can be said.
    """
    d = len(v)
    if noise.link is not None or noise.measured or d > _LARGEST:
        return None
    radius = np.concatenate(
        [_entries(v, error_of_v, noise), noise.radius(y, np.linalg.norm(tokens, axis=1) * np.linalg.norm(v))]
    )
    if not (np.isfinite(radius).all() and (radius > 0).all()):
        return None
    from scipy.optimize import linprog  # a slow import, seldom needed

    # In units of the radii, and for the difference to v, so that all numbers are of order one.
    rows = np.concatenate([np.eye(d), tokens])
    scale = radius[:d]
    A = rows * scale / radius[:, None]
    left = np.concatenate([np.zeros(d), y - tokens @ v]) / radius
    ones = np.ones((len(A), 1))
    result = linprog(
        np.append(np.zeros(d), 1.0),
        A_ub=np.block([[A, -ones], [-A, -ones]]),
        b_ub=np.concatenate([left, -left]),
        bounds=[(None, None)] * d + [(0, None)],
    )
    return float(result.fun) if result.status == 0 else None


def _entries(v: Array, error_of_v: float, noise: Noise) -> Array:
    """Radius of every entry of v, (d,): a + relative |v_j|, whose norm is the stated error."""
    d, r = len(v), noise.relative * np.abs(v)
    first, second = float(r.sum()) / d, float(r @ r) / d - error_of_v**2 / d
    a = -first + math.sqrt(max(first**2 - second, 0.0))
    return np.asarray(max(a, 0.0) + r)
